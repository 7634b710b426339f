// Block RAM of a Lattice ECP5 without its output registers (Lattice FPGA-TN-02204; contents as Project Trellis writes them): 1024
// words of 18 bits, two bytes of 9, INITVAL_xx 16 of them, each in 20 bits. Port B only reads, as in all of our designs.
//
// A port of width w looks at those of its 14 address bits that count words of w bits, where a byte counts as 8. Widths 1, 2 and 4
// leave out the ninth bit of every byte. In width 18 the two lowest address bits enable the bytes to be written. Width 36 is a pseudo
// dual port: port A writes, with four bytes enabled by its lowest address bits, the lower half from DIA, the upper one from DIB; port
// B reads the lower half to DOA, the upper one to DOB.
//
// A reset clears what a port shows: at once (RESETMODE ASYNC), or with the clock, whatever the port's enables (SYNC).
//
// A port that writes shows what was there before (READBEFOREWRITE) or keeps what it showed (NORMAL). What port B reads that A writes
// in the same cycle no document promises: the model gives the complement of what was there. Contents of zeros are no initial value,
// as in distributed RAM.
module DP16KD(DIA, ADA, CEA, CLKA, WEA, RSTA, CSA, DOA, DIB, ADB, CEB, CLKB, RSTB, CSB, DOB);
  parameter DATA_WIDTH_A = 18;
  parameter DATA_WIDTH_B = 18;
  parameter WRITEMODE_A = "NORMAL";
  parameter RESETMODE = "ASYNC";
  parameter ASYNC_RESET_RELEASE = "ASYNC";
  generate
    if (RESETMODE == "ASYNC" && ASYNC_RESET_RELEASE != "ASYNC") DP16KD_of_this_mode_is_not_modelled not_modelled();
  endgenerate
  parameter [319:0] INITVAL_00 = 320'h0;
  parameter [319:0] INITVAL_01 = 320'h0;
  parameter [319:0] INITVAL_02 = 320'h0;
  parameter [319:0] INITVAL_03 = 320'h0;
  parameter [319:0] INITVAL_04 = 320'h0;
  parameter [319:0] INITVAL_05 = 320'h0;
  parameter [319:0] INITVAL_06 = 320'h0;
  parameter [319:0] INITVAL_07 = 320'h0;
  parameter [319:0] INITVAL_08 = 320'h0;
  parameter [319:0] INITVAL_09 = 320'h0;
  parameter [319:0] INITVAL_0A = 320'h0;
  parameter [319:0] INITVAL_0B = 320'h0;
  parameter [319:0] INITVAL_0C = 320'h0;
  parameter [319:0] INITVAL_0D = 320'h0;
  parameter [319:0] INITVAL_0E = 320'h0;
  parameter [319:0] INITVAL_0F = 320'h0;
  parameter [319:0] INITVAL_10 = 320'h0;
  parameter [319:0] INITVAL_11 = 320'h0;
  parameter [319:0] INITVAL_12 = 320'h0;
  parameter [319:0] INITVAL_13 = 320'h0;
  parameter [319:0] INITVAL_14 = 320'h0;
  parameter [319:0] INITVAL_15 = 320'h0;
  parameter [319:0] INITVAL_16 = 320'h0;
  parameter [319:0] INITVAL_17 = 320'h0;
  parameter [319:0] INITVAL_18 = 320'h0;
  parameter [319:0] INITVAL_19 = 320'h0;
  parameter [319:0] INITVAL_1A = 320'h0;
  parameter [319:0] INITVAL_1B = 320'h0;
  parameter [319:0] INITVAL_1C = 320'h0;
  parameter [319:0] INITVAL_1D = 320'h0;
  parameter [319:0] INITVAL_1E = 320'h0;
  parameter [319:0] INITVAL_1F = 320'h0;
  parameter [319:0] INITVAL_20 = 320'h0;
  parameter [319:0] INITVAL_21 = 320'h0;
  parameter [319:0] INITVAL_22 = 320'h0;
  parameter [319:0] INITVAL_23 = 320'h0;
  parameter [319:0] INITVAL_24 = 320'h0;
  parameter [319:0] INITVAL_25 = 320'h0;
  parameter [319:0] INITVAL_26 = 320'h0;
  parameter [319:0] INITVAL_27 = 320'h0;
  parameter [319:0] INITVAL_28 = 320'h0;
  parameter [319:0] INITVAL_29 = 320'h0;
  parameter [319:0] INITVAL_2A = 320'h0;
  parameter [319:0] INITVAL_2B = 320'h0;
  parameter [319:0] INITVAL_2C = 320'h0;
  parameter [319:0] INITVAL_2D = 320'h0;
  parameter [319:0] INITVAL_2E = 320'h0;
  parameter [319:0] INITVAL_2F = 320'h0;
  parameter [319:0] INITVAL_30 = 320'h0;
  parameter [319:0] INITVAL_31 = 320'h0;
  parameter [319:0] INITVAL_32 = 320'h0;
  parameter [319:0] INITVAL_33 = 320'h0;
  parameter [319:0] INITVAL_34 = 320'h0;
  parameter [319:0] INITVAL_35 = 320'h0;
  parameter [319:0] INITVAL_36 = 320'h0;
  parameter [319:0] INITVAL_37 = 320'h0;
  parameter [319:0] INITVAL_38 = 320'h0;
  parameter [319:0] INITVAL_39 = 320'h0;
  parameter [319:0] INITVAL_3A = 320'h0;
  parameter [319:0] INITVAL_3B = 320'h0;
  parameter [319:0] INITVAL_3C = 320'h0;
  parameter [319:0] INITVAL_3D = 320'h0;
  parameter [319:0] INITVAL_3E = 320'h0;
  parameter [319:0] INITVAL_3F = 320'h0;
  input [17:0] DIA;
  input [13:0] ADA;
  input CEA;
  input CLKA;
  input WEA;
  input RSTA;
  input [2:0] CSA;
  output [17:0] DOA;
  input [17:0] DIB;
  input [13:0] ADB;
  input CEB;
  input CLKB;
  input RSTB;
  input [2:0] CSB;
  output [17:0] DOB;
  localparam [64 * 320 - 1:0] CONTENTS = {
    INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C,
    INITVAL_3B, INITVAL_3A, INITVAL_39, INITVAL_38,
    INITVAL_37, INITVAL_36, INITVAL_35, INITVAL_34,
    INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30,
    INITVAL_2F, INITVAL_2E, INITVAL_2D, INITVAL_2C,
    INITVAL_2B, INITVAL_2A, INITVAL_29, INITVAL_28,
    INITVAL_27, INITVAL_26, INITVAL_25, INITVAL_24,
    INITVAL_23, INITVAL_22, INITVAL_21, INITVAL_20,
    INITVAL_1F, INITVAL_1E, INITVAL_1D, INITVAL_1C,
    INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18,
    INITVAL_17, INITVAL_16, INITVAL_15, INITVAL_14,
    INITVAL_13, INITVAL_12, INITVAL_11, INITVAL_10,
    INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C,
    INITVAL_0B, INITVAL_0A, INITVAL_09, INITVAL_08,
    INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04,
    INITVAL_03, INITVAL_02, INITVAL_01, INITVAL_00};

  reg [35:0] mem[511:0];  // two words each, that of the even address below
  integer i;
  generate
    if (CONTENTS != 0) begin : contents
      initial for (i = 0; i < 512; i = i + 1) mem[i] = {CONTENTS[40 * i + 20 +: 18], CONTENTS[40 * i +: 18]};
    end
  endgenerate

  wire on_a = CEA & (CSA == 3'd0);
  wire on_b = CEB & (CSB == 3'd0);
  wire [35:0] word_a = mem[ADA[13:5]];
  wire [35:0] mask, put;
  wire [35:0] written = on_a & WEA ? mask : 36'd0;
  wire [35:0] word_b = mem[ADB[13:5]] ^ (ADA[13:5] == ADB[13:5] ? written : 36'd0);
  wire [17:0] seen_a, seen_b;
  gradloom_block_ram_port #(.WIDTH(DATA_WIDTH_A)) port_a(.AD(ADA), .DI({DIB, DIA}), .WORD(word_a), .MASK(mask), .PUT(put),
                                                         .SEEN(seen_a));
  gradloom_block_ram_port #(.WIDTH(DATA_WIDTH_B)) port_b(.AD(ADB), .DI(36'd0), .WORD(word_b), .MASK(), .PUT(), .SEEN(seen_b));

  reg [17:0] shown_a = 18'd0;
  reg [17:0] shown_b = 18'd0;
  reg [17:0] upper_b = 18'd0;
  always @(posedge CLKA)
    if (written != 36'd0) mem[ADA[13:5]] <= word_a & ~written | put & written;
  wire at_once_a = RESETMODE == "ASYNC" & RSTA;
  wire at_once_b = RESETMODE == "ASYNC" & RSTB;
  always @(posedge CLKA or posedge at_once_a)
    if (at_once_a | RSTA) shown_a <= 18'd0;
    else if (on_a & (~WEA | WRITEMODE_A == "READBEFOREWRITE")) shown_a <= seen_a;
  always @(posedge CLKB or posedge at_once_b)
    if (at_once_b | RSTB) begin
      shown_b <= 18'd0;
      upper_b <= 18'd0;
    end else if (on_b) begin
      shown_b <= seen_b;
      upper_b <= word_b[35:18];
    end
  generate
    if (DATA_WIDTH_B == 36) begin : pseudo
      assign DOA = shown_b;
      assign DOB = upper_b;
    end else begin : dual
      assign DOA = shown_a;
      assign DOB = shown_b;
    end
  endgenerate
endmodule

// Where a port's word lies in the 36 bits at its address: which bits it may write (MASK), with what (PUT), and what it sees of them.
module gradloom_block_ram_port(AD, DI, WORD, MASK, PUT, SEEN);
  parameter WIDTH = 18;
  input [13:0] AD;
  input [35:0] DI;
  input [35:0] WORD;
  output [35:0] MASK;
  output [35:0] PUT;
  output [17:0] SEEN;
  localparam [2:0] BELOW = WIDTH == 4 ? 3'b100 : WIDTH == 2 ? 3'b110 : WIDTH == 1 ? 3'b111 : 3'b000;
  localparam [35:0] ONES = (36'd1 << WIDTH) - 36'd1;
  wire [5:0] place;
  wire [35:0] moved = WORD >> place;
  generate
    if (WIDTH == 36) begin : both
      assign place = 6'd0;
      assign MASK = {{9{AD[3]}}, {9{AD[2]}}, {9{AD[1]}}, {9{AD[0]}}};
      assign SEEN = moved[17:0];
    end else if (WIDTH == 18) begin : word
      assign place = AD[4] ? 6'd18 : 6'd0;
      assign MASK = {18'd0, {9{AD[1]}}, {9{AD[0]}}} << place;
      assign SEEN = moved[17:0];
    end else begin : slice
      assign place = 6'd9 * {4'd0, AD[4:3]} + {3'd0, AD[2:0] & BELOW};
      assign MASK = ONES << place;
      assign SEEN = moved[17:0] & ONES[17:0];
    end
  endgenerate
  assign PUT = DI << place;
endmodule
