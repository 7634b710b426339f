// Pads with their registers, clock gates and clocks of a Lattice ECP5 (Lattice FPGA-TN-02032, FPGA-TN-02200 and FPGA-TN-02202).

// A pad. PADI is its level as an input; PADO and PADT are the level that it drives and whether it drives none.
// gradloom.sim.netlist.netlist_verilog joins what B is joined to by DIR. The pad takes its output, and whether it drives, from the
// fabric or from the registers beside it.
module TRELLIS_IO(input PADI, input I, input T, input IOLDO, input IOLTO, output PADO, output PADT, output O);
  parameter DIR = "INPUT";
  parameter DATAMUX_OREG = "PADDO";
  parameter DATAMUX_ODDR = "PADDO";
  parameter TRIMUX_TSREG = "PADDT";
  assign O = PADI;
  assign PADO = DATAMUX_OREG == "IOLDO" || DATAMUX_ODDR == "IOLDO" ? IOLDO : I;
  assign PADT = DIR == "INPUT" ? 1'b1 : TRIMUX_TSREG == "IOLTO" ? IOLTO : T;
endmodule

// The registers of a pad: of what comes in (INFF), of what goes out (IOLDO) and of whether the pad drives nothing (IOLTO). In mode
// IDDRX1_ODDRX1 what goes out is two bits a cycle, TXDATA0 while the clock is high and TXDATA1 while it is low.
module IOLOGIC(input CLK, input PADDI, input TXDATA0, input TXDATA1, input TSDATA0, output INFF, output IOLDO, output IOLTO);
  parameter MODE = "IREG_OREG";
  reg in = 1'b0;
  reg high = 1'b0;
  reg low = 1'b0;
  reg off = 1'b0;
  always @(posedge CLK) begin
    in <= PADDI;
    high <= TXDATA0;
    low <= TXDATA1;
    off <= TSDATA0;
  end
  assign INFF = in;
  assign IOLTO = off;
  generate
    if (MODE == "IDDRX1_ODDRX1") begin : twice
      assign IOLDO = CLK ? high : low;
    end else begin : once
      assign IOLDO = high;
    end
  endgenerate
endmodule

// Clock gate of the global clock network; CE reads 1 where nothing is joined to it.
module DCCA(input CLKI, input CE, output CLKO);
  assign CLKO = CLKI & CE;
endmodule

// A PLL whose outputs are the clock that comes in, locked 16 cycles after it has power: frequencies and phases are not modelled.
// OFF is no pin of the device: gradloom.sim.netlist.netlist_verilog joins it to what says that there is no power yet.
module EHXPLLL(input CLKI, input CLKFB, input RST, input STDBY, input OFF, output CLKOP, output CLKOS, output LOCK);
  reg [4:0] cycles = 5'd0;
  assign CLKOP = CLKI;
  assign CLKOS = CLKI;
  assign LOCK = cycles[4];
  always @(posedge CLKI)
    if (OFF) cycles <= 5'd0;
    else if (!cycles[4]) cycles <= cycles + 5'd1;
endmodule
