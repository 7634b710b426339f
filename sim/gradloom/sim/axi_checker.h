// The rules of AXI4 and AXI4-Lite at a machine's ports, looked at in every cycle of every run, and the narrower promises of this
// machine's managers (gradloom.rtl.memory_path.axi): INCR bursts of at most 64 full beats with id 0; data only behind their address;
// strobes all set, or from some beat on all 0 until every burst is answered; write responses taken at once. Behind ports that are wider
// than the machine's own beats (gradloom.rtl.axi32) strobes are those of the beats, of which a burst's first and last word may lack some.
//
// Section numbers are those of the AMBA AXI and ACE protocol specification (ARM IHI 0022).
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "axi_ports.h"

namespace gradloom {

// Violations in the order of their cycles, one a line; behind the first MOST none is kept.
class Violations {
public:
    static constexpr int MOST = 32;
    static constexpr uint64_t NOWHERE = ~uint64_t{0};

    void add(const char* port, uint64_t cycle, const char* rule, uint64_t address = NOWHERE) {
        if (count_++ >= MOST) return;
        char line[256];
        if (address == NOWHERE) std::snprintf(line, sizeof line, "%s in cycle %llu: %s", port, 1ull * cycle, rule);
        else std::snprintf(line, sizeof line, "%s in cycle %llu: %s, address %#llx", port, 1ull * cycle, rule, 1ull * address);
        text_ += (text_.empty() ? "" : "\n") + std::string(line);
    }
    const std::string& text() const { return text_; }

private:
    int count_ = 0;
    std::string text_;
};

// Reset: VALID is low in it (from its third cycle on: the machine's is synchronous, its engines' a cycle later) and in the first cycle
// behind it (A3.1.2).
enum class Phase { RESET_BEGINS, RESET, FIRST_CYCLE, RUNS };

// What a channel offers must stay until it is taken (A3.2.1).
template <class Payload> class Held {
public:
    enum Fault { NONE, WITHDRAWN, CHANGED };
    Fault look(bool valid, bool ready, const Payload& now) {
        const Fault fault = !held_ ? NONE : !valid ? WITHDRAWN : now == payload_ ? NONE : CHANGED;
        first_ = valid && !held_;
        held_ = valid && !ready;
        if (held_) payload_ = now;
        return fault;
    }
    // The offer of this cycle is a new one.
    bool first() const { return first_; }
    void forget() { held_ = first_ = false; }

private:
    bool held_ = false, first_ = false;
    Payload payload_{};
};

class AddressChecker {
public:
    static constexpr uint32_t BURST_BEATS = 64, PAGE = 4096;
    static constexpr uint8_t INCR = 1, CACHE = 3, PROT = 0;

    AddressChecker(const char* port, const char* prefix, const AddressChannel& channel, uint32_t beat)
        : port_(port), prefix_(prefix), channel_(channel), beat_(beat) {}

    bool first() const { return held_.first(); }
    uint64_t address() const { return *channel_.addr; }
    uint32_t beats() const { return *channel_.len + 1u; }
    bool accepted() const { return *channel_.valid && *channel_.ready; }
    void forget() { held_.forget(); }

    void check(uint64_t cycle, Violations& seen, uint64_t fence, uint64_t fence_limit) {
        const AddressChannel& c = channel_;
        const Address now{*c.addr, *c.len, *c.id, *c.size, *c.burst, *c.cache, *c.prot};
        const auto fault = held_.look(*c.valid, *c.ready, now);
        if (fault == fault_type::WITHDRAWN) told(cycle, seen, "VALID was withdrawn before READY");
        if (fault == fault_type::CHANGED) told(cycle, seen, "the address or its attributes changed before READY");
        if (!held_.first()) return;
        const uint64_t first = *c.addr, limit = first + static_cast<uint64_t>(beats()) * beat_;
        if (*c.burst != INCR) told(cycle, seen, "BURST is not INCR");
        if (1u << *c.size != beat_) told(cycle, seen, "SIZE is not a whole beat");
        if (beats() > BURST_BEATS) told(cycle, seen, "LEN is more than 64 beats");
        if (first % beat_) told(cycle, seen, "the address is no multiple of the beat");
        if (first / PAGE != (limit - 1) / PAGE) told(cycle, seen, "the burst crosses 4 KiB");
        if (*c.id != 0) told(cycle, seen, "ID is not 0");
        if (*c.cache != CACHE || *c.prot != PROT) told(cycle, seen, "CACHE or PROT is not the machine's");
        if (first < fence || limit > fence_limit) told(cycle, seen, "the burst leaves the fence");
    }
    void told(uint64_t cycle, Violations& seen, const char* rule) const {
        seen.add(port_, cycle, (std::string(prefix_) + ": " + rule).c_str(), *channel_.addr);
    }

private:
    struct Address {
        uint32_t addr;
        uint8_t len, id, size, burst, cache, prot;
        bool operator==(const Address& other) const {
            return addr == other.addr && len == other.len && id == other.id && size == other.size && burst == other.burst &&
                   cache == other.cache && prot == other.prot;
        }
    };
    using fault_type = Held<Address>;

    const char *port_, *prefix_;
    AddressChannel channel_;
    uint32_t beat_;
    Held<Address> held_;
};

class AxiChecker {
public:
    explicit AxiChecker(uint32_t beat) : beat_(beat), own_(beat) {}

    // The machine's own beats have so many bytes, and the ports' several times as many.
    void own_beat(uint32_t bytes) { own_ = bytes; }

    void add(const ReadPort& port) { readers_.push_back({port, AddressChecker(port.name, "AR", port.ar, beat_)}); }
    void add(const WritePort& port) { writers_.push_back({port, AddressChecker(port.name, "AW", port.aw, beat_)}); }
    void add(const LitePort& port) { lites_.push_back({port}); }

    // From now on bursts must lie in [first, limit).
    void fence(uint64_t first, uint64_t limit) { fence_ = first, fence_limit_ = limit; }
    const std::string& violations() const { return seen_.text(); }

    // Once a cycle, when all signals have settled before the rising edge.
    void check(uint64_t cycle, bool reset) {
        const Phase now = !reset ? (reset_cycles_ ? Phase::FIRST_CYCLE : Phase::RUNS)
                                 : reset_cycles_ < 2 ? Phase::RESET_BEGINS : Phase::RESET;
        reset_cycles_ = reset ? reset_cycles_ + 1 : 0;
        if (now != Phase::RUNS) return silent(cycle, now);
        for (Reader& reader : readers_) reader.ar.check(cycle, seen_, fence_, fence_limit_);
        for (Writer& writer : writers_) check(writer, cycle);
        for (Lite& lite : lites_) check(lite, cycle);
    }

private:
    struct Burst { uint64_t address; uint32_t beats, sent; };
    struct Beat {
        uint8_t data[64];
        uint64_t strobes;
        bool last;
        bool operator==(const Beat& other) const {
            return !std::memcmp(data, other.data, sizeof data) && strobes == other.strobes && last == other.last;
        }
    };
    struct Response {
        uint8_t code;
        uint32_t data;
        bool operator==(const Response& other) const { return code == other.code && data == other.data; }
    };
    struct Reader {
        ReadPort port;
        AddressChecker ar;
    };
    struct Writer {
        WritePort port;
        AddressChecker aw;
        Held<Beat> w{};
        std::deque<Burst> bursts{};  // whose address was shown and whose data are not all sent
        uint32_t unanswered = 0;
        bool finishing = false;      // from a beat without strobes on until every burst is answered
    };
    struct Lite {
        LitePort port;
        Held<Response> b{}, r{};
        uint32_t addresses = 0, data = 0, reads = 0;
    };

    // In and right behind a reset.
    void silent(uint64_t cycle, Phase now) {
        const char* rule = now == Phase::RESET ? "is high in reset" : "is high in the first cycle behind reset";
        const bool look = now != Phase::RESET_BEGINS;
        auto low = [&](const char* port, const char* name, const uint8_t* valid) {
            if (look && *valid) seen_.add(port, cycle, (std::string(name) + " " + rule).c_str());
        };
        for (Reader& reader : readers_) {
            low(reader.port.name, "ARVALID", reader.port.ar.valid);
            reader.ar.forget();
        }
        for (Writer& writer : writers_) {
            low(writer.port.name, "AWVALID", writer.port.aw.valid);
            low(writer.port.name, "WVALID", writer.port.wvalid);
            writer.aw.forget();
            writer.w.forget();
            writer.bursts.clear();
            writer.unanswered = 0;
            writer.finishing = false;
        }
        for (Lite& lite : lites_) {
            low(lite.port.name, "BVALID", lite.port.bvalid);
            low(lite.port.name, "RVALID", lite.port.rvalid);
            lite = Lite{lite.port};
        }
    }

    void check(Writer& writer, uint64_t cycle) {
        const WritePort& port = writer.port;
        writer.aw.check(cycle, seen_, fence_, fence_limit_);
        if (writer.aw.first()) {
            writer.bursts.push_back({writer.aw.address(), writer.aw.beats(), 0});
            writer.unanswered++;
            // An address that the machine offered before may wait inside a wider port.
            if (writer.finishing && own_ == beat_) writer.aw.told(cycle, seen_, "a new address while bursts end without strobes");
        }
        data(writer, cycle);
        if (*port.bvalid) {
            if (!*port.bready) seen_.add(port.name, cycle, "BREADY is low while a response waits");
            else if (writer.unanswered) writer.unanswered--;
        }
        if (!writer.unanswered) writer.finishing = false;
    }

    void data(Writer& writer, uint64_t cycle) {
        const WritePort& port = writer.port;
        const uint64_t address = writer.bursts.empty() ? Violations::NOWHERE
                                                       : writer.bursts.front().address + writer.bursts.front().sent * beat_;
        auto told = [&](const char* rule) { seen_.add(port.name, cycle, rule, address); };
        Beat now{};
        if (*port.wvalid) {
            std::memcpy(now.data, port.wdata, beat_);
            std::memcpy(&now.strobes, port.wstrb, (beat_ + 7) / 8);
            now.last = *port.wlast;
        }
        const auto fault = writer.w.look(*port.wvalid, *port.wready, now);
        if (fault == Held<Beat>::WITHDRAWN) told("W: VALID was withdrawn before READY");
        if (fault == Held<Beat>::CHANGED) told("W: data, strobes or LAST changed before READY");
        if (!*port.wvalid) return;
        if (writer.bursts.empty()) {
            if (writer.w.first()) told("W: a beat without an address");
            return;
        }
        Burst& burst = writer.bursts.front();
        if (writer.w.first()) {
            if (now.last != (burst.sent + 1 == burst.beats)) told(now.last ? "WLAST before the last beat" : "no WLAST at the last beat");
            const uint64_t all = ~uint64_t{0} >> (64 - beat_);
            const bool part = own_ < beat_ && of_own_beats(now.strobes, burst.sent == 0), ends = burst.sent + 1 == burst.beats;
            if (now.strobes && now.strobes != all && !part)
                told(own_ < beat_ ? "WSTRB is not that of whole beats side by side" : "WSTRB is neither all nor none");
            else if (now.strobes && writer.finishing) told("WSTRB is set again while bursts end without strobes");
            if (!now.strobes || (part && !ends && !(now.strobes >> (beat_ - 1)))) writer.finishing = true;
        }
        if (*port.wready && ++burst.sent == burst.beats) writer.bursts.pop_front();
    }

    // Whether strobes are those of whole beats of the machine's own, side by side, the first of which is missing only where a burst begins.
    bool of_own_beats(uint64_t strobes, bool begins) const {
        const auto below = [](uint32_t bytes) { return (uint64_t{1} << bytes) - 1; };
        for (uint32_t first = 0; first < (begins ? beat_ : own_); first += own_)
            for (uint32_t limit = first + own_; limit <= beat_; limit += own_)
                if (strobes == (below(limit) ^ below(first))) return true;
        return false;
    }

    // OKAY and SLVERR are the only answers of the registers.
    void check(Lite& lite, uint64_t cycle) {
        const LitePort& port = lite.port;
        auto told = [&](const char* rule) { seen_.add(port.name, cycle, rule); };
        auto held = [&](Held<Response>& channel, bool valid, bool ready, const Response& now, const char* withdrawn, const char* changed) {
            const auto fault = channel.look(valid, ready, now);
            if (fault == Held<Response>::WITHDRAWN) told(withdrawn);
            if (fault == Held<Response>::CHANGED) told(changed);
        };
        held(lite.b, *port.bvalid, *port.bready, {*port.bresp, 0}, "BVALID was withdrawn before BREADY", "BRESP changed before BREADY");
        held(lite.r, *port.rvalid, *port.rready, {*port.rresp, *port.rdata}, "RVALID was withdrawn before RREADY",
             "RDATA or RRESP changed before RREADY");
        if (lite.b.first()) {
            if (!lite.addresses || !lite.data) told("BVALID without an address and its data");
            else lite.addresses--, lite.data--;
            if (*port.bresp & 1) told("BRESP is neither OKAY nor SLVERR");
        }
        if (lite.r.first()) {
            if (!lite.reads) told("RVALID without an address");
            else lite.reads--;
            if (*port.rresp & 1) told("RRESP is neither OKAY nor SLVERR");
        }
        lite.addresses += *port.awvalid && *port.awready;
        lite.data += *port.wvalid && *port.wready;
        lite.reads += *port.arvalid && *port.arready;
    }

    uint32_t beat_, own_;
    uint64_t reset_cycles_ = 0;
    uint64_t fence_ = 0, fence_limit_ = ~uint64_t{0};
    std::vector<Reader> readers_;
    std::vector<Writer> writers_;
    std::vector<Lite> lites_;
    Violations seen_;
};

}  // namespace gradloom
