// The multiplier of a Lattice ECP5 with registers before and behind it, or without (Lattice FPGA-TN-02205, MULT18X18D): each operand
// is signed or not, and comes from its pins or, with SOURCE, from the neighbour's shift chain (SRI); the product has 36 bits. Registers
// take the first clock, enable and reset, which comes with the clock and goes before the enable.
module MULT18X18D(A, B, SRIA, SRIB, SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, CLK0, CE0, RST0, P);
  parameter REG_INPUTA_CLK = "NONE";
  parameter REG_INPUTB_CLK = "NONE";
  parameter REG_OUTPUT_CLK = "NONE";
  input [17:0] A;
  input [17:0] B;
  input [17:0] SRIA;
  input [17:0] SRIB;
  input SIGNEDA;
  input SIGNEDB;
  input SOURCEA;
  input SOURCEB;
  input CLK0;
  input CE0;
  input RST0;
  output [35:0] P;
  wire [18:0] from_a, from_b;
  gradloom_multiplier_register #(.WIDTH(19), .CLK(REG_INPUTA_CLK)) register_a(
    .CLK0(CLK0), .CE0(CE0), .RST0(RST0), .D({SIGNEDA, SOURCEA ? SRIA : A}), .Q(from_a));
  gradloom_multiplier_register #(.WIDTH(19), .CLK(REG_INPUTB_CLK)) register_b(
    .CLK0(CLK0), .CE0(CE0), .RST0(RST0), .D({SIGNEDB, SOURCEB ? SRIB : B}), .Q(from_b));
  wire signed [36:0] a = {{19{from_a[18] & from_a[17]}}, from_a[17:0]};
  wire signed [36:0] b = {{19{from_b[18] & from_b[17]}}, from_b[17:0]};
  wire signed [36:0] product = a * b;
  gradloom_multiplier_register #(.WIDTH(36), .CLK(REG_OUTPUT_CLK)) register_p(
    .CLK0(CLK0), .CE0(CE0), .RST0(RST0), .D(product[35:0]), .Q(P));
endmodule

module gradloom_multiplier_register(CLK0, CE0, RST0, D, Q);
  parameter WIDTH = 1;
  parameter CLK = "NONE";
  input CLK0;
  input CE0;
  input RST0;
  input [WIDTH - 1:0] D;
  output [WIDTH - 1:0] Q;
  generate
    if (CLK == "NONE") begin : none
      assign Q = D;
    end else begin : one
      reg [WIDTH - 1:0] value;
      always @(posedge CLK0)
        if (RST0) value <= {WIDTH{1'b0}};
        else if (CE0) value <= D;
      assign Q = value;
    end
  endgenerate
endmodule
