// Distributed RAM of a Lattice ECP5 slice: written at the clock, read at any time (Lattice FPGA-TN-02204, distributed memory).
//
// Contents of zeros are no initial value: they are what Verilator gives a memory without one, or draws.

module gradloom_ram16(DI, WAD, WRE, WCK, RAD, DO);
  parameter WIDTH = 4;
  parameter [16 * WIDTH - 1:0] INIT = 0;
  parameter WREMUX = "WRE";
  parameter WCKMUX = "WCK";
  input [WIDTH - 1:0] DI;
  input [3:0] WAD;
  input WRE;
  input WCK;
  input [3:0] RAD;
  output [WIDTH - 1:0] DO;
  reg [WIDTH - 1:0] mem[15:0];
  integer i;
  generate
    if (INIT != 0) begin : contents
      initial for (i = 0; i < 16; i = i + 1) mem[i] = INIT[WIDTH * i +: WIDTH];
    end
  endgenerate
  wire clk = WCKMUX == "INV" ? ~WCK : WCK;
  wire write = WREMUX == "1" ? 1'b1 : WREMUX == "0" ? 1'b0 : WREMUX == "INV" ? ~WRE : WRE;
  always @(posedge clk) if (write) mem[WAD] <= DI;
  assign DO = mem[RAD];
endmodule

module TRELLIS_DPR16X4(input [3:0] DI, input [3:0] WAD, input WRE, input WCK, input [3:0] RAD, output [3:0] DO);
  parameter [63:0] INITVAL = 64'h0000000000000000;
  parameter WREMUX = "WRE";
  parameter WCKMUX = "WCK";
  gradloom_ram16 #(.WIDTH(4), .INIT(INITVAL), .WREMUX(WREMUX), .WCKMUX(WCKMUX)) bits(
    .DI(DI), .WAD(WAD), .WRE(WRE), .WCK(WCK), .RAD(RAD), .DO(DO));
endmodule

// The slice whose LUT inputs carry write address and data to the two slices beside it (nextpnr's dram_to_ramw).
module TRELLIS_RAMW(input A0, input B0, input C0, input D0, input A1, input B1, input C1, input D1,
                    output WADO0, output WADO1, output WADO2, output WADO3, output WDO0, output WDO1, output WDO2, output WDO3);
  assign {WADO3, WADO2, WADO1, WADO0} = {A0, C0, B0, D0};
  assign {WDO3, WDO2, WDO1, WDO0} = {B1, D1, A1, C1};
endmodule
