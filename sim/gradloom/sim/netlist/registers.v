// A flip-flop of a Lattice ECP5 slice (Lattice FPGA-TN-02205, Project Trellis' REG).
//
// It wakes up as REGSET says: power-up reset (PUR) brings it there. A simulation may take that away and draw what registers wake up
// as (gradloom.sim.power_up). A global set/reset (GSR) would do the same later; a netlist with its cell is refused, so that the
// parameter GSR says nothing.
module TRELLIS_FF(input CLK, input LSR, input CE, input DI, input M, output Q);
  parameter CLKMUX = "CLK";
  parameter CEMUX = "1";
  parameter LSRMUX = "LSR";
  parameter SRMODE = "LSR_OVER_CE";
  parameter REGSET = "RESET";
  parameter SD = "1";
  localparam VALUE = REGSET == "SET" ? 1'b1 : 1'b0;
  wire clk = CLKMUX == "INV" ? ~CLK : CLK;
  wire enabled = CEMUX == "1" ? 1'b1 : CEMUX == "0" ? 1'b0 : CEMUX == "INV" ? ~CE : CE;
  wire again = LSRMUX == "INV" ? ~LSR : LSR;
  // SD chooses between the output of the LUT beside it and the pin of the slice.
  wire data = SD == "1" ? DI : M;
  reg state = VALUE;
  assign Q = state;
  generate
    if (SRMODE == "ASYNC") begin : at_once
      always @(posedge clk or posedge again)
        if (again) state <= VALUE;
        else if (enabled) state <= data;
    end else begin : at_the_clock
      always @(posedge clk)
        if (again) state <= VALUE;
        else if (enabled) state <= data;
    end
  endgenerate
endmodule
