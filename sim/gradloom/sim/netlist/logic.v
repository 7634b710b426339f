// Look-up tables, carry chains and multiplexers of a Lattice ECP5 slice (Lattice FPGA-TN-02205, Project Trellis' SLICE).

module LUT4(input A, input B, input C, input D, output Z);
  parameter [15:0] INIT = 16'h0000;
  assign Z = INIT[{D, C, B, A}];
endmodule

module PFUMX(input ALUT, input BLUT, input C0, output Z);
  assign Z = C0 ? ALUT : BLUT;
endmodule

module L6MUX21(input D0, input D1, input SD, output Z);
  assign Z = SD ? D1 : D0;
endmodule

// One bit of a carry chain. The carry is passed on where the LUT is 1, else made by the LUT's lowest quarter, a function of A and B;
// with an injected 1 the sum does not see the carry, and none is made.
module gradloom_carry(input A, input B, input C, input D, input CIN, output S, output COUT);
  parameter [15:0] INIT = 16'h0000;
  parameter INJECT1 = "NO";
  wire lut = INIT[{D, C, B, A}];
  wire made = INJECT1 == "YES" ? 1'b0 : INIT[{2'b00, B, A}];
  assign S = lut ^ (INJECT1 == "YES" ? 1'b0 : CIN);
  assign COUT = lut ? CIN : made;
endmodule

module CCU2C(input CIN, input A0, input B0, input C0, input D0, input A1, input B1, input C1, input D1,
             output S0, output S1, output COUT);
  parameter [15:0] INIT0 = 16'h0000;
  parameter [15:0] INIT1 = 16'h0000;
  parameter INJECT1_0 = "YES";
  parameter INJECT1_1 = "YES";
  wire between;
  gradloom_carry #(.INIT(INIT0), .INJECT1(INJECT1_0)) low(.A(A0), .B(B0), .C(C0), .D(D0), .CIN(CIN), .S(S0), .COUT(between));
  gradloom_carry #(.INIT(INIT1), .INJECT1(INJECT1_1)) high(.A(A1), .B(B1), .C(C1), .D(D1), .CIN(between), .S(S1), .COUT(COUT));
endmodule

// Half a slice as nextpnr places it: a LUT, a bit of a carry chain or 16 bits of distributed RAM, and a multiplexer behind it. IS_Z1
// is no parameter of nextpnr's: gradloom.sim.netlist.netlist_verilog sets it where FXA and FXB are joined to something.
module TRELLIS_COMB(input A, input B, input C, input D, input M, input FCI, input F1, input FXA, input FXB, input WD,
                    input WAD0, input WAD1, input WAD2, input WAD3, input WRE, input WCK,
                    output F, output FCO, output OFX);
  parameter MODE = "LOGIC";
  parameter [15:0] INITVAL = 16'h0000;
  parameter CCU2_INJECT1 = "NO";
  parameter WREMUX = "WRE";
  parameter WCKMUX = "WCK";
  parameter IS_Z1 = 0;
  generate
    if (MODE == "DPRAM") begin : distributed
      // The LUT's inputs are the read address: D, B, C, A from its lowest bit on. INITVAL is in the order of a LUT.
      gradloom_ram16 #(.WIDTH(1), .INIT({INITVAL[15], INITVAL[7], INITVAL[13], INITVAL[5], INITVAL[11], INITVAL[3], INITVAL[9],
          INITVAL[1], INITVAL[14], INITVAL[6], INITVAL[12], INITVAL[4], INITVAL[10], INITVAL[2], INITVAL[8], INITVAL[0]}),
        .WREMUX(WREMUX), .WCKMUX(WCKMUX)) bits(
        .DI(WD), .WAD({WAD3, WAD2, WAD1, WAD0}), .WRE(WRE), .WCK(WCK), .RAD({A, C, B, D}), .DO(F));
      assign FCO = 1'b0;
    end else if (MODE == "CCU2") begin : carry
      gradloom_carry #(.INIT(INITVAL), .INJECT1(CCU2_INJECT1)) bits(.A(A), .B(B), .C(C), .D(D), .CIN(FCI), .S(F), .COUT(FCO));
    end else begin : lut
      assign F = INITVAL[{D, C, B, A}];
      assign FCO = 1'b0;
    end
    if (IS_Z1) begin : six
      assign OFX = M ? FXB : FXA;
    end else begin : five
      assign OFX = M ? F1 : F;
    end
  endgenerate
endmodule
