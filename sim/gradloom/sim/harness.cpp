// A machine and its DRAM behind a C interface (driven by gradloom.sim.rtl_device through ctypes).
//
// The Verilated class Vdut has ports clk, rst, s_axil_* (AXI4-Lite subordinate), irq and AXI4 managers m_axi_* and, where the
// machine has more DMA channels, m1_axi_* to m3_axi_*, each with a read half, a write half or both.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "Vdut.h"
#include "axi_checker.h"
#include "dram.h"
#include "verilated.h"
#ifdef TRACE_FST
#include "verilated_fst_c.h"
#endif

using namespace gradloom;

namespace {

constexpr int LITE_TIMEOUT = 100000;  // cycles
constexpr int EVENT_BITS = 16;

// Starts and ends of commands in this cycle; a machine without the output has none.
template <class Top> auto events_of(const Top& top, int) -> decltype(static_cast<uint64_t>(top.events)) { return top.events; }
template <class Top> uint64_t events_of(const Top&, long) { return 0; }

// For each prefix: add the halves of that manager that the machine has to its memory and to its checker.
#define ADDRESS_CHANNEL(P)                                                                                                       \
    AddressChannel { &t.P##valid, &t.P##ready, &t.P##id, &t.P##len, &t.P##size, &t.P##burst, &t.P##cache, &t.P##prot, &t.P##addr }
#define AXI_PORT(P)                                                                                                              \
    template <class Top, class Sink> auto P##read_half(Top& t, Sink& sink, int) -> decltype(void(t.P##arvalid)) {                \
        sink.add(ReadPort{#P, ADDRESS_CHANNEL(P##ar), &t.P##rvalid, &t.P##rready, &t.P##rid, &t.P##rresp, &t.P##rlast,           \
                          &t.P##rdata});                                                                                         \
    }                                                                                                                            \
    template <class Top, class Sink> void P##read_half(Top&, Sink&, long) {}                                                     \
    template <class Top, class Sink> auto P##write_half(Top& t, Sink& sink, int) -> decltype(void(t.P##awvalid)) {               \
        sink.add(WritePort{#P, ADDRESS_CHANNEL(P##aw), &t.P##wvalid, &t.P##wready, &t.P##wlast, &t.P##bvalid, &t.P##bready,      \
                           &t.P##bid, &t.P##bresp, &t.P##wdata, &t.P##wstrb});                                                   \
    }                                                                                                                            \
    template <class Top, class Sink> void P##write_half(Top&, Sink&, long) {}
AXI_PORT(m_axi_)
AXI_PORT(m1_axi_)
AXI_PORT(m2_axi_)
AXI_PORT(m3_axi_)

template <class Top, class Sink> void connect(Top& top, Sink& sink) {
    m_axi_read_half(top, sink, 0);
    m1_axi_read_half(top, sink, 0);
    m2_axi_read_half(top, sink, 0);
    m3_axi_read_half(top, sink, 0);
    m_axi_write_half(top, sink, 0);
    m1_axi_write_half(top, sink, 0);
    m2_axi_write_half(top, sink, 0);
    m3_axi_write_half(top, sink, 0);
}

struct Machine {
    VerilatedContext context;
    Vdut top;
    Dram dram;
    AxiChecker checker;
    uint64_t cycle = 0;
    bool recording = false;
    std::vector<uint64_t> events;
#ifdef TRACE_FST
    std::unique_ptr<VerilatedFstC> trace;
    uint64_t trace_first = 0, trace_limit = 0;
#endif

    // What has no initial value is 0, or drawn from `power_up` if that is not 0 (libraries built for it).
    Machine(uint64_t size, uint32_t power_up)
        : top(woken(context, power_up), "machine"), dram(size, sizeof(top.m_axi_rdata)), checker(sizeof(top.m_axi_rdata)) {
        connect(top, dram);
        connect(top, checker);
        checker.add(LitePort{"s_axil_", &top.s_axil_awvalid, &top.s_axil_awready, &top.s_axil_wvalid, &top.s_axil_wready,
                             &top.s_axil_bvalid, &top.s_axil_bready, &top.s_axil_bresp, &top.s_axil_arvalid,
                             &top.s_axil_arready, &top.s_axil_rvalid, &top.s_axil_rready, &top.s_axil_rresp, &top.s_axil_rdata});
        top.s_axil_awaddr = top.s_axil_araddr = 0;
        top.s_axil_awprot = top.s_axil_arprot = 0;
        top.s_axil_wdata = top.s_axil_wstrb = 0;
        top.s_axil_awvalid = top.s_axil_wvalid = top.s_axil_bready = top.s_axil_arvalid = top.s_axil_rready = 0;
    }
    static VerilatedContext* woken(VerilatedContext& context, uint32_t power_up) {
        context.randReset(power_up ? 2 : 0);
        context.randSeed(static_cast<int>(power_up & 0x7FFFFFFF));
        return &context;
    }
    ~Machine() {
#ifdef TRACE_FST
        if (trace) trace->close();
#endif
        top.final();
    }

    // Inputs change and outputs settle on the falling edge, so combinational paths through the machine are seen; then the
    // rising edge. `watch` looks at the settled ports.
    template <class Watch> void step(Watch watch) {
        top.clk = 0;
        dram.drive();
        top.eval();
        dump(0);
        watch();
        if (recording)
            if (const uint64_t now = events_of(top, 0)) events.push_back(cycle << EVENT_BITS | now);
        checker.check(cycle, top.rst);
        dram.sample(cycle, top.rst);
        top.clk = 1;
        top.eval();
        dump(1);
        cycle++;
    }
    void step() {
        step([] {});
    }

    void dump(int phase) {
#ifdef TRACE_FST
        if (!trace || cycle < trace_first) return;
        if (cycle < trace_limit) {
            trace->dump(2 * cycle + phase);
        } else {
            trace->close();
            trace.reset();
        }
#else
        (void)phase;
#endif
    }

    void reset(int cycles) {
        top.rst = 1;
        for (int i = 0; i < cycles; i++) step();
        top.rst = 0;
        step();
    }

    int lite_write(uint32_t offset, uint32_t value) {
        top.s_axil_awaddr = offset;
        top.s_axil_wdata = value;
        top.s_axil_wstrb = 15;
        top.s_axil_awvalid = top.s_axil_wvalid = top.s_axil_bready = 1;
        int response = -1;
        for (int i = 0; i < LITE_TIMEOUT && response < 0; i++) {
            bool address = false, data = false;
            step([&] {
                address = top.s_axil_awready;
                data = top.s_axil_wready;
                if (top.s_axil_bvalid) response = top.s_axil_bresp;
            });
            if (address) top.s_axil_awvalid = 0;
            if (data) top.s_axil_wvalid = 0;
        }
        top.s_axil_awvalid = top.s_axil_wvalid = top.s_axil_bready = 0;
        return response;
    }

    int lite_read(uint32_t offset, uint32_t* value) {
        top.s_axil_araddr = offset;
        top.s_axil_arvalid = top.s_axil_rready = 1;
        int response = -1;
        for (int i = 0; i < LITE_TIMEOUT && response < 0; i++) {
            bool address = false;
            step([&] {
                address = top.s_axil_arready;
                if (!top.s_axil_rvalid) return;
                *value = top.s_axil_rdata;
                response = top.s_axil_rresp;
            });
            if (address) top.s_axil_arvalid = 0;
        }
        top.s_axil_arvalid = top.s_axil_rready = 0;
        return response;
    }
};

Machine& machine(void* self) { return *static_cast<Machine*>(self); }

}  // namespace

extern "C" {

void* gradloom_new(uint64_t size, uint32_t power_up) {
    try {
        auto created = std::make_unique<Machine>(size, power_up);
#ifdef TRACE_FST
        created->context.traceEverOn(true);
#endif
        created->reset(8);
        return created.release();
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void gradloom_delete(void* self) { delete static_cast<Machine*>(self); }

uint32_t gradloom_beat_bytes(void* self) { return sizeof(machine(self).top.m_axi_rdata); }

int gradloom_write(void* self, uint64_t address, const uint8_t* data, uint64_t n) {
    Dram& dram = machine(self).dram;
    if (!dram.inside(address, n)) return -1;
    std::memcpy(dram.bytes() + address, data, n);
    return 0;
}

int gradloom_read(void* self, uint64_t address, uint8_t* data, uint64_t n) {
    Dram& dram = machine(self).dram;
    if (!dram.inside(address, n)) return -1;
    std::memcpy(data, dram.bytes() + address, n);
    return 0;
}

// AXI4-Lite accesses: the response code, or -1 if none came.
int gradloom_csr_write(void* self, uint32_t offset, uint32_t value) { return machine(self).lite_write(offset, value); }

int gradloom_csr_read(void* self, uint32_t offset, uint32_t* value) { return machine(self).lite_read(offset, value); }

// At most `limit` cycles, up to the first after which irq is high. Returns the cycles.
uint64_t gradloom_run(void* self, uint64_t limit) {
    Machine& m = machine(self);
    uint64_t n = 0;
    while (n < limit && !m.top.irq) {
        m.step();
        n++;
    }
    return n;
}

int gradloom_irq(void* self) { return machine(self).top.irq; }

uint64_t gradloom_cycle(void* self) { return machine(self).cycle; }

void gradloom_dram(void* self, uint64_t bandwidth_num, uint64_t bandwidth_den, uint32_t latency, uint32_t write_latency,
                   const uint32_t* stall, uint64_t seed) {
    Settings settings;
    settings.bandwidth_num = bandwidth_num;
    settings.bandwidth_den = bandwidth_den;
    settings.latency = latency;
    settings.write_latency = write_latency;
    for (int channel = 0; channel < CHANNELS; channel++) settings.stall[channel] = stall[channel];
    settings.seed = seed;
    machine(self).dram.set(settings);
}

void gradloom_fail(void* self, uint64_t first, uint64_t limit, uint8_t response) {
    machine(self).dram.fail(first, limit, response);
}

void gradloom_fail_nowhere(void* self) { machine(self).dram.fail_nowhere(); }

void gradloom_fence(void* self, uint64_t first, uint64_t limit) { machine(self).checker.fence(first, limit); }

void gradloom_own_beat(void* self, uint32_t bytes) { machine(self).checker.own_beat(bytes); }

// What the machine did against the rules of its ports so far, one line each.
const char* gradloom_violations(void* self) { return machine(self).checker.violations().c_str(); }

int gradloom_track(void* self) { return machine(self).dram.track() ? 0 : -1; }

uint64_t gradloom_last_write(void* self, uint64_t address) { return machine(self).dram.last_write(address); }

void gradloom_counts(void* self, uint64_t* counts) {
    const Dram::Counts& seen = machine(self).dram.counts();
    counts[0] = seen.read_beats;
    counts[1] = seen.write_beats;
    counts[2] = seen.read_bursts;
    counts[3] = seen.write_bursts;
}

// Record the starts and ends of commands from now on, or no longer; what was recorded is forgotten.
void gradloom_record(void* self, int on) {
    machine(self).recording = on;
    machine(self).events.clear();
}

uint64_t gradloom_event_count(void* self) { return machine(self).events.size(); }

// Every recorded cycle with an event: cycle * 65536 + bits (bit 2 n: engine n starts a command, 2 n + 1: ends one).
void gradloom_event_read(void* self, uint64_t* target) {
    const std::vector<uint64_t>& events = machine(self).events;
    std::copy(events.begin(), events.end(), target);
}

// Record cycles first .. limit - 1 as FST. -1 if this build cannot.
int gradloom_trace(void* self, const char* path, uint64_t first, uint64_t limit) {
#ifdef TRACE_FST
    Machine& m = machine(self);
    if (m.trace) m.trace->close();
    m.trace = std::make_unique<VerilatedFstC>();
    m.top.trace(m.trace.get(), 99);
    m.trace->open(path);
    m.trace_first = first;
    m.trace_limit = limit;
    return m.trace->isOpen() ? 0 : -1;
#else
    (void)self, (void)path, (void)first, (void)limit;
    return -1;
#endif
}

}  // extern "C"
