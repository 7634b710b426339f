// Pads, clock gates and clocks of a Lattice ECP5 (Lattice FPGA-TN-02032 and FPGA-TN-02200).

// The pad of an input is PADI, that of an output PADO: gradloom.verif.ecp5.netlist_verilog joins what B is joined to by DIR.
module TRELLIS_IO(input PADI, input I, input T, output PADO, output O);
  parameter DIR = "INPUT";
  assign O = PADI;
  assign PADO = I;
endmodule

// Clock gate of the global clock network; CE reads 1 where nothing is joined to it.
module DCCA(input CLKI, input CE, output CLKO);
  assign CLKO = CLKI & CE;
endmodule

// A PLL whose only output is the clock that comes in, locked from its 16th cycle on: frequencies and phases are not modelled.
module EHXPLLL(input CLKI, input CLKFB, input RST, input STDBY, output CLKOP, output LOCK);
  reg [4:0] cycles = 5'd0;
  assign CLKOP = CLKI;
  assign LOCK = cycles[4];
  always @(posedge CLKI) if (!cycles[4]) cycles <= cycles + 5'd1;
endmodule
