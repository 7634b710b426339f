// The board's end of the cable behind a C interface (driven by gradloom.sim.link.link_device through ctypes): bytes go in and come
// out behind the UART; memory, registers of the machine and of the board are models, or the machine itself is there.
//
// The Verilated class Vdut has ports clk, rst, the streams rx and tx (rx__valid is rx___05Fvalid there), rx_error and either the ports of
// gradloom.rtl.board.link.board_link.BoardLink (the link alone), or m_axi_* of a machine and m1_axi_* of the link in front of it.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "Vdut.h"
#include "axi_checker.h"
#include "dram.h"
#include "verilated.h"

using namespace gradloom;

namespace {

constexpr uint16_t BYTE_LOST = 0x100;
constexpr uint32_t COUNTS_READS = 0x700, COUNTS_WRITES = 0x704;  // registers that show an access that was done twice

#define ADDRESS_CHANNEL(P)                                                                                                       \
    AddressChannel { &t.P##valid, &t.P##ready, &t.P##id, &t.P##len, &t.P##size, &t.P##burst, &t.P##cache, &t.P##prot, &t.P##addr }
#define AXI_PORT(P)                                                                                                              \
    template <class Top, class Use> auto P##ports(Top& t, Use use, int) -> decltype(void(t.P##arvalid), true) {                   \
        use(ReadPort{#P, ADDRESS_CHANNEL(P##ar), &t.P##rvalid, &t.P##rready, &t.P##rid, &t.P##rresp, &t.P##rlast, &t.P##rdata},    \
            WritePort{#P, ADDRESS_CHANNEL(P##aw), &t.P##wvalid, &t.P##wready, &t.P##wlast, &t.P##bvalid, &t.P##bready, &t.P##bid,  \
                      &t.P##bresp, &t.P##wdata, &t.P##wstrb});                                                                    \
        return true;                                                                                                             \
    }                                                                                                                            \
    template <class Top, class Use> bool P##ports(Top&, Use, long) { return false; }
AXI_PORT(m_axi_)
AXI_PORT(m1_axi_)

template <class Top> constexpr auto alone(int) -> decltype(void(std::declval<Top&>().m_axil_awvalid), true) { return true; }
template <class Top> constexpr bool alone(long) { return false; }

// Registers of the machine (AXI4-Lite) and of the board as a memory: refused in a range, answered after some cycles.
struct Registers {
    uint32_t words[1 << 14] = {};
    uint32_t refuse_first = 0, refuse_limit = 0, latency = 2;
    std::vector<uint64_t> log;  // address << 32 | value of each write

    bool refused(uint32_t address) const { return address >= refuse_first && address < refuse_limit; }
    uint32_t read(uint32_t address) { return address == COUNTS_READS ? words[address >> 2]++ : words[address >> 2]; }
    void write(uint32_t address, uint32_t value) {
        log.push_back(static_cast<uint64_t>(address) << 32 | value);
        words[address >> 2] = address == COUNTS_WRITES ? words[address >> 2] + 1 : value;
    }
};

struct Bench {
    VerilatedContext context;
    Vdut top;
    Dram dram;
    AxiChecker checker;
    Violations seen;
    Registers registers;
    std::deque<uint16_t> input;
    std::deque<uint8_t> output;
    uint64_t cycle = 0, strobed = 0;
    uint32_t gap = 0, pause = 0, quiet = 0, take_share = 65536;
    uint64_t random = 0x9E3779B97F4A7C15ull;
    ReadPort reader{};
    WritePort bridge{};
    uint64_t whole = 0;      // the strobes that the checker sees
    uint32_t sent = 0;       // beats of the burst so far
    Held<uint64_t> strobes;
    Held<uint32_t> lite_aw, lite_w, lite_ar;
    uint32_t wait_b = 0, wait_r = 0, wait_window = 0, open_aw = 0, open_w = 0;
    bool aw = false, w = false, ar = false;
    uint32_t write_address = 0, write_value = 0, read_address = 0;

    explicit Bench(uint64_t size) : top(&context, "link"), dram(size, sizeof(top.m_axi_rdata)), checker(sizeof(top.m_axi_rdata)) {
        const bool machine = m1_axi_ports(top, [&](ReadPort r, WritePort x) { add(r, x); }, 0);
        m_axi_ports(top, [&](ReadPort r, WritePort x) {
            if (!machine) return add(r, x);
            dram.add(r), dram.add(x), checker.add(r), checker.add(x);
        }, 0);
        if constexpr (alone<Vdut>(0)) {
            top.m_axil_bvalid = top.m_axil_rvalid = 0;
            top.tx_idle = 1;
            top.irq = top.line_break = 0;
        }
        reset(4);
    }

    // The machine's managers write whole beats, and the checker holds them to it; the link's first and last beats are partial. It
    // sees whole ones, and `check_strobes` sees what the strobes are.
    void add(ReadPort r, WritePort x) {
        dram.add(r), dram.add(x), checker.add(r);
        reader = r, bridge = x;
        WritePort shown = x;
        shown.wstrb = &whole;
        checker.add(shown);
    }

    void check_strobes() {
        const uint32_t beat = sizeof(top.m_axi_rdata);
        const uint64_t all = ~uint64_t{0} >> (64 - beat);
        uint64_t now = 0;
        std::memcpy(&now, bridge.wstrb, (beat + 7) / 8);
        whole = all;
        const auto fault = strobes.look(*bridge.wvalid, *bridge.wready, now);
        if (fault != Held<uint64_t>::NONE) seen.add(bridge.name, cycle, "W: strobes changed before READY");
        if (!*bridge.wvalid || !*bridge.wready) return;
        const uint64_t upwards = now | (now - 1);  // all below the lowest one that is set, too
        if (now == 0 || ((upwards + 1) & upwards & all)) seen.add(bridge.name, cycle, "W: strobes have a gap or are none");
        if (sent != 0 && !(now & 1)) seen.add(bridge.name, cycle, "W: a later beat does not begin with its first byte");
        if (!*bridge.wlast && !(now >> (beat - 1) & 1)) seen.add(bridge.name, cycle, "W: a beat before the last does not end with its last byte");
        strobed += __builtin_popcountll(now);
        sent = *bridge.wlast ? 0 : sent + 1;
    }

    template <class Top> void drive_registers(Top& t) {
        if constexpr (alone<Top>(0)) {
            t.m_axil_awready = !aw && (cycle & 1);
            t.m_axil_wready = !w && (cycle % 3 != 0);
            t.m_axil_arready = !ar;
            t.m_axil_bvalid = aw && w && wait_b == 0;
            t.m_axil_bresp = registers.refused(write_address) ? 2 : 0;
            t.m_axil_rvalid = ar && wait_r == 0;
            t.m_axil_rresp = registers.refused(read_address) ? 2 : 0;
            if (t.m_axil_rvalid) t.m_axil_rdata = registers.words[read_address >> 2];
            t.window_ready = t.window_valid && wait_window >= registers.latency;
            if (t.window_ready) t.window_rdata = registers.words[(0x8000u | t.window_address << 2) >> 2];
        }
    }

    template <class Top> void sample_registers(Top& t) {
        if constexpr (alone<Top>(0)) {
            auto told = [&](bool bad, const char* rule) { if (bad) seen.add("m_axil_", cycle, rule); };
            told(lite_aw.look(t.m_axil_awvalid, t.m_axil_awready, t.m_axil_awaddr) != Held<uint32_t>::NONE, "AW was not held");
            told(lite_w.look(t.m_axil_wvalid, t.m_axil_wready, t.m_axil_wdata) != Held<uint32_t>::NONE, "W was not held");
            told(lite_ar.look(t.m_axil_arvalid, t.m_axil_arready, t.m_axil_araddr) != Held<uint32_t>::NONE, "AR was not held");
            told(t.m_axil_wvalid && t.m_axil_wstrb != 15, "WSTRB is not 15");
            told(t.m_axil_awvalid && t.m_axil_awaddr % 4, "AWADDR is no multiple of 4");
            told(t.m_axil_arvalid && t.m_axil_araddr % 4, "ARADDR is no multiple of 4");
            told((t.m_axil_awvalid && t.m_axil_awaddr >= 0x8000) || (t.m_axil_arvalid && t.m_axil_araddr >= 0x8000),
                 "an address of the board's registers");
            if (wait_b) wait_b--;
            if (wait_r) wait_r--;
            if (t.m_axil_bvalid && t.m_axil_bready) {
                if (!registers.refused(write_address)) registers.write(write_address, write_value);
                aw = w = false;
            }
            if (t.m_axil_rvalid && t.m_axil_rready) {
                if (!registers.refused(read_address)) registers.read(read_address);
                ar = false;
            }
            if (t.m_axil_awvalid && t.m_axil_awready) aw = true, write_address = t.m_axil_awaddr, wait_b = registers.latency;
            if (t.m_axil_wvalid && t.m_axil_wready) w = true, write_value = t.m_axil_wdata, wait_b = registers.latency;
            if (t.m_axil_arvalid && t.m_axil_arready) ar = true, read_address = t.m_axil_araddr, wait_r = registers.latency;
            if (t.window_ready) {
                const uint32_t address = 0x8000u | t.window_address << 2;
                if (t.window_write) registers.write(address, t.window_wdata);
                else registers.read(address);
                wait_window = 0;
            } else if (t.window_valid) {
                wait_window++;
            }
        }
    }

    template <class Top> bool busy(Top& t) {
        bool bus = *reader.ar.valid || *reader.rvalid || *bridge.aw.valid || *bridge.wvalid || *bridge.bvalid;
        if constexpr (alone<Top>(0)) bus = bus || t.m_axil_awvalid || t.m_axil_wvalid || t.m_axil_arvalid || t.m_axil_rvalid || t.window_valid;
        return bus || t.tx___05Fvalid || t.rx___05Fvalid || !input.empty();
    }

    uint32_t draw() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return random >> 24 & 0xFFFF;
    }

    void step() {
        top.clk = 0;
        top.rx_error = 0;
        if (pause) pause--;
        if (!top.rx___05Fvalid && !input.empty() && pause == 0) {
            if (input.front() == BYTE_LOST) {
                top.rx_error = 1;
                input.pop_front();
            } else {
                top.rx___05Fpayload = static_cast<uint8_t>(input.front());
                top.rx___05Fvalid = 1;
            }
        }
        top.tx___05Fready = draw() < take_share;
        dram.drive();
        drive_registers(top);
        top.eval();
        drive_registers(top);  // window_ready answers in the cycle
        top.eval();
        check_strobes();
        checker.check(cycle, top.rst);
        const bool taken = top.rx___05Fvalid && top.rx___05Fready && !top.rst;
        if (top.tx___05Fvalid && top.tx___05Fready && !top.rst) output.push_back(top.tx___05Fpayload);
        quiet = busy(top) ? 0 : quiet + 1;
        if (!top.rst) sample_registers(top);
        dram.sample(cycle, top.rst);
        top.clk = 1;
        top.eval();
        if (taken) {
            input.pop_front();
            top.rx___05Fvalid = 0;
            pause = gap;
        }
        cycle++;
    }

    void reset(int cycles) {
        top.rst = 1;
        top.rx___05Fvalid = 0;
        input.clear();
        for (int i = 0; i < cycles; i++) step();
        top.rst = 0;
        aw = w = ar = false;
        wait_window = 0;
        sent = 0;
        strobes.forget(), lite_aw.forget(), lite_w.forget(), lite_ar.forget();
        step();
    }
};

Bench& bench(void* self) { return *static_cast<Bench*>(self); }

}  // namespace

extern "C" {

void* link_new(uint64_t size) {
    try {
        return new Bench(size);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void link_delete(void* self) { delete &bench(self); }

// Bytes (below 256), or 256 for one that was lost on the line, to be taken as soon as the link does, `gap` cycles apart.
void link_feed(void* self, const uint16_t* items, uint64_t n, uint32_t gap) {
    bench(self).gap = gap;
    bench(self).input.insert(bench(self).input.end(), items, items + n);
}
uint64_t link_take(void* self, uint8_t* target, uint64_t most) {
    auto& output = bench(self).output;
    const uint64_t n = std::min<uint64_t>(most, output.size());
    std::copy(output.begin(), output.begin() + n, target);
    output.erase(output.begin(), output.begin() + n);
    return n;
}
// At most `limit` cycles, until nothing has moved for `calm` cycles, or (calm = 0) until a byte has come out. Returns the cycles.
uint64_t link_run(void* self, uint64_t limit, uint32_t calm) {
    Bench& b = bench(self);
    uint64_t n = 0;
    for (b.quiet = 0; n < limit && (calm ? b.quiet < calm : b.output.empty()); n++) b.step();
    return n;
}
void link_reset(void* self) { bench(self).reset(2); }
uint64_t link_cycle(void* self) { return bench(self).cycle; }
uint64_t link_strobed(void* self) { return bench(self).strobed; }
void link_irq(void* self, int level) {
    if constexpr (alone<Vdut>(0)) bench(self).top.irq = level;
}
uint32_t link_bit_step(void* self) { return bench(self).top.bit_step; }
void link_line(void* self, int tx_idle, int line_break) {
    if constexpr (alone<Vdut>(0)) bench(self).top.tx_idle = tx_idle, bench(self).top.line_break = line_break;
}
int link_write(void* self, uint64_t address, const uint8_t* data, uint64_t n) {
    if (!bench(self).dram.inside(address, n)) return -1;
    std::memcpy(bench(self).dram.bytes() + address, data, n);
    return 0;
}
int link_read(void* self, uint64_t address, uint8_t* data, uint64_t n) {
    if (!bench(self).dram.inside(address, n)) return -1;
    std::memcpy(data, bench(self).dram.bytes() + address, n);
    return 0;
}
void link_memory(void* self, uint32_t latency, uint32_t stall, uint64_t seed, uint32_t take_share) {
    Settings settings;
    settings.latency = settings.write_latency = latency;
    for (auto& share : settings.stall) share = stall;
    settings.seed = seed;
    bench(self).dram.set(settings);
    bench(self).take_share = take_share;
}
void link_fail(void* self, uint64_t first, uint64_t limit) { bench(self).dram.fail(first, limit, 2); }
void link_fail_nowhere(void* self) { bench(self).dram.fail_nowhere(); }
void link_fence(void* self, uint64_t first, uint64_t limit) { bench(self).checker.fence(first, limit); }
const char* link_violations(void* self) {
    const std::string& own = bench(self).seen.text();
    return own.empty() ? bench(self).checker.violations().c_str() : own.c_str();
}
void link_counts(void* self, uint64_t* counts) {
    const Dram::Counts& seen = bench(self).dram.counts();
    counts[0] = seen.read_beats, counts[1] = seen.write_beats, counts[2] = seen.read_bursts, counts[3] = seen.write_bursts;
}
void link_refuse(void* self, uint32_t first, uint32_t limit) {
    bench(self).registers.refuse_first = first, bench(self).registers.refuse_limit = limit;
}
void link_set_register(void* self, uint32_t address, uint32_t value) { bench(self).registers.words[address >> 2] = value; }
uint32_t link_register(void* self, uint32_t address) { return bench(self).registers.words[address >> 2]; }
uint64_t link_log_size(void* self) { return bench(self).registers.log.size(); }
void link_log(void* self, uint64_t* target) { std::copy(bench(self).registers.log.begin(), bench(self).registers.log.end(), target); }

}  // extern "C"
