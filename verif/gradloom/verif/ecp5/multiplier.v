// The multiplier of a Lattice ECP5 without its registers (Lattice FPGA-TN-02205, MULT18X18D): each operand is signed or not, and comes
// from its pins or, with SOURCE, from the neighbour's shift chain (SRI); the product has 36 bits.
module MULT18X18D(A, B, SRIA, SRIB, SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, P);
  input [17:0] A;
  input [17:0] B;
  input [17:0] SRIA;
  input [17:0] SRIB;
  input SIGNEDA;
  input SIGNEDB;
  input SOURCEA;
  input SOURCEB;
  output [35:0] P;
  wire [17:0] from_a = SOURCEA ? SRIA : A;
  wire [17:0] from_b = SOURCEB ? SRIB : B;
  wire signed [36:0] a = {{19{SIGNEDA & from_a[17]}}, from_a};
  wire signed [36:0] b = {{19{SIGNEDB & from_b[17]}}, from_b};
  wire signed [36:0] product = a * b;
  assign P = product[35:0];
endmodule
