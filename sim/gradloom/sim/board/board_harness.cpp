// A whole board behind a C interface (driven by gradloom.sim.board.board_device through ctypes): an SDRAM at the pins of the design,
// and at its cable bytes behind the UART or the waveforms of a UART, whichever the design has.
//
// The Verilated class Vdut has the ports of gradloom.rtl.board.board_design.BoardDesign; rx__valid is rx___05Fvalid there.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <type_traits>

#include "Vdut.h"
#include "sdram_model.h"
#include "verilated.h"

using namespace gradloom;

namespace {

constexpr int DATA_BITS = 8;

// Bytes between the host and either kind of cable: `before` sets the design's inputs, `after` looks at its settled outputs.
struct Cable {
    struct Line {
        uint32_t frame = 0, bits = 0, clocks = 0;  // bits to come, and clocks of this one
    };
    std::deque<uint8_t> input, output;
    uint32_t bit_clocks = 8;
    uint64_t fed = 0, lost = 0;  // bytes of the host so far; the one of them (from 1) that the cable loses
    Line there, back;

    void feed(const uint8_t* data, uint64_t n) {
        for (uint64_t i = 0; i < n; i++)
            if (++fed != lost) input.push_back(data[i]);
    }

    template <class Top> auto before(Top& top, int) -> decltype(void(top.rx___05Fvalid)) {
        top.rx___05Fvalid = !input.empty();
        if (!input.empty()) top.rx___05Fpayload = input.front();
        top.tx___05Fready = 1;
    }
    template <class Top> auto after(Top& top, int) -> decltype(void(top.rx___05Fvalid)) {
        if (top.rst) return;
        if (top.rx___05Fvalid && top.rx___05Fready) input.pop_front();
        if (top.tx___05Fvalid) output.push_back(top.tx___05Fpayload);
    }
    template <class Top> void before(Top& top, long) {
        if (there.bits == 0 && !input.empty()) {
            there = {static_cast<uint32_t>(input.front()) << 1 | 1u << (DATA_BITS + 1), DATA_BITS + 2, bit_clocks};
            input.pop_front();
        }
        top.rx_pin = there.bits ? there.frame & 1 : 1;
    }
    template <class Top> void after(Top& top, long) {
        if (top.rst) {
            there = back = {};
            return;
        }
        if (there.bits && --there.clocks == 0) there = {there.frame >> 1, there.bits - 1, bit_clocks};
        if (back.bits == 0) {
            if (!top.tx_pin) back = {0, DATA_BITS + 1, bit_clocks + bit_clocks / 2};
        } else if (--back.clocks == 0) {
            if (back.bits == 1 && top.tx_pin) output.push_back(static_cast<uint8_t>(back.frame));
            back = {back.frame >> 1 | uint32_t{top.tx_pin} << (DATA_BITS - 1), back.bits - 1, bit_clocks};
        }
    }
};

// The tracks from the design's pins to those of the memory, and what may be wrong with them.
struct Tracks {
    uint8_t cke, cs_n, ras_n, cas_n, we_n, ba, dqm, dq_oe;
    uint16_t a;
    std::remove_reference_t<decltype(Vdut::dq_o)> dq_o, dq_i;
    uint32_t swapped = 0, first = 0, second = 0;  // two data lines on their way back
    uint16_t low = 0, high = 0;                   // address lines that are stuck while a row is opened
    bool no_refresh = false;

    template <class Top> void there(const Top& top) {
        cke = top.cke, cs_n = top.cs_n, ras_n = top.ras_n, cas_n = top.cas_n, we_n = top.we_n, ba = top.ba, dqm = top.dqm;
        dq_oe = top.dq_oe, a = top.a, dq_o = top.dq_o;
        if (!cs_n && !ras_n && cas_n && we_n) a = (a & ~low) | high;
        if (no_refresh && !cs_n && !ras_n && !cas_n && we_n) cs_n = 1;
    }
    template <class Top> void back(Top& top) const {
        const uint32_t differs = swapped & ((dq_i >> first ^ dq_i >> second) & 1u);
        top.dq_i = dq_i ^ (differs << first) ^ (differs << second);
    }
};

// Which fault is planted in a design that has an input for that.
template <class Top> auto plant(Top& top, uint32_t fault, int) -> decltype(void(top.fault)) { top.fault = fault; }
template <class Top> void plant(Top&, uint32_t, long) {}

// A context in which what has no initial value is 0, or drawn from `power_up` if that is not 0 (libraries built for it).
VerilatedContext* woken(VerilatedContext& context, uint32_t power_up) {
    context.randReset(power_up ? 2 : 0);
    context.randSeed(static_cast<int>(power_up & 0x7FFFFFFF));
    return &context;
}

struct Board {
    VerilatedContext context;
    Vdut top;
    Sdram sdram;
    Tracks tracks{};
    Cable cable;
    uint64_t cycle = 0;

    Board(const SdramSettings& settings, uint32_t power_up) : top(woken(context, power_up), "board"), sdram(settings) {
        Tracks& t = tracks;
        sdram.connect({&t.cke, &t.cs_n, &t.ras_n, &t.cas_n, &t.we_n, &t.ba, &t.a, &t.dqm, &t.dq_o, &t.dq_oe, &t.dq_i});
        plant(top, 0, 0);
        reset(8);
    }
    ~Board() { top.final(); }

    void step() {
        top.clk = 0;
        cable.before(top, 0);
        sdram.drive();
        tracks.back(top);
        top.eval();
        cable.after(top, 0);
        tracks.there(top);
        sdram.sample(cycle, top.rst);
        top.clk = 1;
        top.eval();
        cycle++;
    }

    void reset(int cycles) {
        cable.input.clear();
        top.rst = 1;
        for (int i = 0; i < cycles; i++) step();
        top.rst = 0;
    }
};

Board& board(void* self) { return *static_cast<Board*>(self); }

}  // namespace

extern "C" {

void* board_new(const SdramSettings* settings, uint32_t power_up) {
    try {
        return new Board(*settings, power_up);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void board_delete(void* self) { delete &board(self); }

void board_feed(void* self, const uint8_t* data, uint64_t n) { board(self).cable.feed(data, n); }
uint64_t board_take(void* self, uint8_t* target, uint64_t most) {
    auto& output = board(self).cable.output;
    const uint64_t n = std::min<uint64_t>(most, output.size());
    std::copy(output.begin(), output.begin() + n, target);
    output.erase(output.begin(), output.begin() + n);
    return n;
}
// At most `limit` cycles, until a byte has come out. Returns the cycles.
uint64_t board_run(void* self, uint64_t limit) {
    Board& b = board(self);
    uint64_t n = 0;
    for (; n < limit && b.cable.output.empty(); n++) b.step();
    return n;
}
uint64_t board_cycle(void* self) { return board(self).cycle; }
void board_reset(void* self) { board(self).reset(2); }
void board_bit_clocks(void* self, uint32_t clocks) { board(self).cable.bit_clocks = clocks; }
// The `nth` byte from now on of the host is lost on the cable.
void board_lose(void* self, uint64_t nth) { board(self).cable.lost = board(self).cable.fed + nth; }
// Faults of the tracks: two data lines exchanged on their way back; a line of a row's address stuck; no REFRESH arrives.
void board_swap(void* self, uint32_t first, uint32_t second) {
    Tracks& tracks = board(self).tracks;
    tracks.swapped = 1, tracks.first = first, tracks.second = second;
}
void board_stick(void* self, uint32_t bit, int level) {
    Tracks& tracks = board(self).tracks;
    (level ? tracks.high : tracks.low) |= 1u << bit;
}
void board_plant(void* self, uint32_t fault) { plant(board(self).top, fault, 0); }
void board_no_refresh(void* self) { board(self).tracks.no_refresh = true; }
const char* board_violations(void* self) { return board(self).sdram.violations().c_str(); }
uint64_t board_size(void* self) { return board(self).sdram.size(); }
uint8_t* board_bytes(void* self) { return board(self).sdram.bytes(); }
void board_counts(void* self, uint64_t* counts) { std::memcpy(counts, &board(self).sdram.counts(), sizeof(Sdram::Counts)); }

}  // extern "C"
