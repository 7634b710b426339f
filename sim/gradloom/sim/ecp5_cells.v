// Behaviour of cells of Lattice ECP5 as far as machines use them (gradloom.rtl.ecp5): Lattice FPGA-TN-02205 (sysDSP),
// FPGA-DS-02012 (slices). What is not modelled is an unknown module, so that it is no silent difference.

module CCU2C (input CIN, A0, B0, C0, D0, A1, B1, C1, D1, output S0, S1, COUT);
  parameter [15:0] INIT0 = 16'h0000, INIT1 = 16'h0000;
  parameter INJECT1_0 = "YES", INJECT1_1 = "YES";
  generate
    if (INJECT1_0 != "NO" || INJECT1_1 != "NO") CCU2C_with_INJECT1_is_not_modelled not_modelled();
  endgenerate
  wire [3:0] in0 = {D0, C0, B0, A0}, in1 = {D1, C1, B1, A1};
  wire p0 = INIT0[in0], p1 = INIT1[in1], middle;
  assign middle = p0 ? CIN : INIT0[{2'b00, in0[1:0]}];
  assign COUT = p1 ? middle : INIT1[{2'b00, in1[1:0]}];
  assign S0 = p0 ^ CIN, S1 = p1 ^ middle;
endmodule

// A factor is registered with its SIGNED, the product behind it; a register's clock, enable and synchronous reset are one of four
// each, and without a clock there is no register.
module MULT18X18D (
    input A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0,
    input B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0,
    input C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5, C4, C3, C2, C1, C0,
    input SRIA17, SRIA16, SRIA15, SRIA14, SRIA13, SRIA12, SRIA11, SRIA10, SRIA9, SRIA8, SRIA7, SRIA6, SRIA5, SRIA4,
    SRIA3, SRIA2, SRIA1, SRIA0,
    input SRIB17, SRIB16, SRIB15, SRIB14, SRIB13, SRIB12, SRIB11, SRIB10, SRIB9, SRIB8, SRIB7, SRIB6, SRIB5, SRIB4,
    SRIB3, SRIB2, SRIB1, SRIB0,
    input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
    input CLK3, CLK2, CLK1, CLK0,
    input CE3, CE2, CE1, CE0,
    input RST3, RST2, RST1, RST0,
    output P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15, P14,
    P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0);
  parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "CE0", REG_INPUTA_RST = "RST0";
  parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "CE0", REG_INPUTB_RST = "RST0";
  parameter REG_INPUTC_CLK = "NONE", REG_INPUTC_CE = "CE0", REG_INPUTC_RST = "RST0";
  parameter REG_PIPELINE_CLK = "NONE", REG_PIPELINE_CE = "CE0", REG_PIPELINE_RST = "RST0";
  parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0";
  parameter CLK0_DIV = "ENABLED", CLK1_DIV = "ENABLED", CLK2_DIV = "ENABLED", CLK3_DIV = "ENABLED";
  parameter HIGHSPEED_CLK = "NONE", GSR = "ENABLED", CAS_MATCH_REG = "FALSE", SOURCEB_MODE = "B_SHIFT";
  parameter MULT_BYPASS = "DISABLED", RESETMODE = "SYNC";
  generate
    if (SOURCEB_MODE != "B_SHIFT" || MULT_BYPASS != "DISABLED" || RESETMODE != "SYNC" || REG_INPUTC_CLK != "NONE"
        || CAS_MATCH_REG != "FALSE" || HIGHSPEED_CLK != "NONE" || GSR != "DISABLED")
      MULT18X18D_of_this_mode_is_not_modelled not_modelled();
  endgenerate
  wire [3:0] clocks = {CLK3, CLK2, CLK1, CLK0}, enables = {CE3, CE2, CE1, CE0}, resets = {RST3, RST2, RST1, RST0};
  wire [18:0] a, b;
  wire signed [18:0] wide_a = {a[18] & a[17], a[17:0]}, wide_b = {b[18] & b[17], b[17:0]};
  wire [35:0] found = wide_a * wide_b, middle;
  MULT18X18D_register #(19, REG_INPUTA_CLK, REG_INPUTA_CE, REG_INPUTA_RST) register_a (clocks, enables, resets,
    {SIGNEDA, A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0}, a);
  MULT18X18D_register #(19, REG_INPUTB_CLK, REG_INPUTB_CE, REG_INPUTB_RST) register_b (clocks, enables, resets,
    {SIGNEDB, B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0}, b);
  MULT18X18D_register #(36, REG_PIPELINE_CLK, REG_PIPELINE_CE, REG_PIPELINE_RST) register_m (clocks, enables, resets, found, middle);
  MULT18X18D_register #(36, REG_OUTPUT_CLK, REG_OUTPUT_CE, REG_OUTPUT_RST) register_p (clocks, enables, resets, middle,
    {P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15, P14, P13,
    P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0});
endmodule

module MULT18X18D_register #(parameter WIDTH = 1, CLK = "NONE", CE = "CE0", RST = "RST0") (
    input [3:0] clocks, enables, resets, input [WIDTH-1:0] d, output [WIDTH-1:0] q);
  generate
    if (CLK == "NONE") begin : none
      assign q = d;
    end else begin : one
      wire clock = clocks[CLK == "CLK3" ? 3 : CLK == "CLK2" ? 2 : CLK == "CLK1" ? 1 : 0];
      wire enable = enables[CE == "CE3" ? 3 : CE == "CE2" ? 2 : CE == "CE1" ? 1 : 0];
      wire reset = resets[RST == "RST3" ? 3 : RST == "RST2" ? 2 : RST == "RST1" ? 1 : 0];
      reg [WIDTH-1:0] value;
      always @(posedge clock) if (reset) value <= 0; else if (enable) value <= d;
      assign q = value;
    end
  endgenerate
endmodule
