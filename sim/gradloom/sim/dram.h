// A DRAM behind AXI4 subordinate ports: it only moves bytes.
//
// Every port answers its reads in order, `latency` cycles after their address at the earliest, and a write `write_latency` cycles
// after its last beat; nothing is ordered between ports. All ports' reads and writes share `bandwidth` bytes a cycle (a rational
// number; 0 = a beat a cycle each); when it is short they take turns. Every channel of every port can stall at random, seeded.
// Addresses outside the memory, and chosen ranges, answer with an error and move nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <vector>

#include "axi_ports.h"

namespace gradloom {

enum Channel { AR, R, AW, W, B, CHANNELS };

struct Settings {
    uint64_t bandwidth_num = 0, bandwidth_den = 1;
    uint32_t latency = 0, write_latency = 0;
    uint32_t stall[CHANNELS] = {0, 0, 0, 0, 0};  // of 65536 cycles
    uint64_t seed = 1;
};

class Dram {
public:
    struct Counts { uint64_t read_beats, write_beats, read_bursts, write_bursts; };

    Dram(uint64_t size, uint32_t beat) : size_(size), beat_(beat) {
        bytes_ = static_cast<uint8_t*>(std::calloc(size, 1));  // pages come from the system when first touched
        if (!bytes_) throw std::bad_alloc();
    }
    ~Dram() { std::free(bytes_); std::free(written_); }
    Dram(const Dram&) = delete;
    Dram& operator=(const Dram&) = delete;

    bool inside(uint64_t address, uint64_t n) const { return address <= size_ && n <= size_ - address; }
    uint8_t* bytes() { return bytes_; }
    const Counts& counts() const { return counts_; }

    void add(const ReadPort& port) { readers_.push_back(Reader{port}); }
    void add(const WritePort& port) { writers_.push_back(Writer{port}); }

    void set(const Settings& settings) {
        settings_ = settings;
        tokens_ = 0;
        uint64_t stream = settings.seed * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull;
        for (Reader& reader : readers_) reader.random = stream += 0xA0761D6478BD642Full;
        for (Writer& writer : writers_) writer.random = stream += 0xA0761D6478BD642Full;
    }
    void fail(uint64_t first, uint64_t limit, uint8_t response) { faults_.push_back({first, limit, response}); }
    void fail_nowhere() { faults_.clear(); }
    bool track() {
        if (!written_) written_ = static_cast<uint64_t*>(std::calloc(size_ / beat_ + 1, sizeof(uint64_t)));
        return written_ != nullptr;
    }
    // Cycle in which the beat was last written, 0 = never (or not tracked).
    uint64_t last_write(uint64_t address) const { return written_ && address < size_ ? written_[address / beat_] : 0; }

    // The port protocol per cycle: drive() before the falling edge's evaluation, sample() after it. Nothing is sampled in reset.
    void drive() {
        refill();
        const size_t sides = readers_.size() + writers_.size();
        size_t served = sides;
        uint64_t budget = settings_.bandwidth_num ? tokens_ / cost() : sides;
        // The side behind the one that was served last goes first.
        for (size_t k = 1; k <= sides; k++) {
            const size_t side = (last_ + k) % sides;
            const bool taken = side < readers_.size() ? drive(readers_[side], budget != 0)
                                                      : drive(writers_[side - readers_.size()], budget != 0);
            if (taken) {
                budget--;
                served = side;
            }
        }
        if (served != sides) last_ = served;
    }

    void sample(uint64_t cycle, bool reset) {
        if (reset) return;
        for (Reader& reader : readers_) sample(reader);
        for (Writer& writer : writers_) sample(writer, cycle);
        now_++;
    }

private:
    struct Burst { uint64_t address; uint32_t beats, done; uint64_t due; uint8_t id, response; };
    struct Fault { uint64_t first, limit; uint8_t response; };
    struct Reader {
        ReadPort port;
        uint64_t random = 1;
        bool shown = false;
        std::deque<Burst> bursts{};
    };
    struct Writer {
        WritePort port;
        uint64_t random = 1;
        bool shown = false;
        std::deque<Burst> bursts{}, answers{};
    };
    static constexpr size_t OUTSTANDING = 64;

    // Both return whether they take a beat of the cycle's budget.
    bool drive(Reader& reader, bool budget) {
        const ReadPort& port = reader.port;
        *port.ar.ready = reader.bursts.size() < OUTSTANDING && !stalls(reader.random, AR);
        const bool want = !reader.shown && !reader.bursts.empty() && reader.bursts.front().due <= now_ && !stalls(reader.random, R);
        const bool take = want && budget;
        if (take) {
            const Burst& burst = reader.bursts.front();
            const uint8_t response = respond(burst.address, beat_);
            if (response) std::memset(port.rdata, 0, beat_);
            else std::memcpy(port.rdata, bytes_ + burst.address, beat_);
            *port.rresp = response;
            *port.rlast = burst.done + 1 == burst.beats;
            *port.rid = burst.id;
            reader.shown = true;
            spend();
        }
        *port.rvalid = reader.shown;
        return take;
    }

    bool drive(Writer& writer, bool budget) {
        const WritePort& port = writer.port;
        *port.aw.ready = writer.bursts.size() < OUTSTANDING && !stalls(writer.random, AW);
        const bool open = !writer.bursts.empty() && writer.bursts.front().done < writer.bursts.front().beats;
        *port.wready = open && *port.wvalid && !stalls(writer.random, W) && budget;
        if (*port.wready) spend();
        if (!writer.shown && !writer.answers.empty() && writer.answers.front().due <= now_ && !stalls(writer.random, B)) {
            *port.bresp = writer.answers.front().response;
            *port.bid = writer.answers.front().id;
            writer.shown = true;
        }
        *port.bvalid = writer.shown;
        return *port.wready;
    }

    void sample(Reader& reader) {
        const ReadPort& port = reader.port;
        if (*port.ar.valid && *port.ar.ready) {
            reader.bursts.push_back({*port.ar.addr, *port.ar.len + 1u, 0, now_ + settings_.latency + 1, *port.ar.id, 0});
            counts_.read_bursts++;
        }
        if (*port.rvalid && *port.rready) {
            Burst& burst = reader.bursts.front();
            reader.shown = false;
            counts_.read_beats++;
            burst.address += beat_;
            if (++burst.done == burst.beats) reader.bursts.pop_front();
        }
    }

    void sample(Writer& writer, uint64_t cycle) {
        const WritePort& port = writer.port;
        if (*port.bvalid && *port.bready) {
            writer.answers.pop_front();
            writer.shown = false;
        }
        if (*port.wvalid && *port.wready) {
            Burst& burst = writer.bursts.front();
            const uint8_t response = respond(burst.address, beat_);
            if (!response) {
                const uint8_t* data = static_cast<const uint8_t*>(port.wdata);
                uint32_t strobes = 0;
                std::memcpy(&strobes, port.wstrb, (beat_ + 7) / 8);
                for (uint32_t i = 0; i < beat_; i++)
                    if (strobes >> i & 1) bytes_[burst.address + i] = data[i];
                if (written_ && strobes) written_[burst.address / beat_] = cycle;
            }
            burst.response = std::max(burst.response, response);
            burst.address += beat_;
            if (++burst.done == burst.beats) {
                writer.answers.push_back({0, 0, 0, now_ + settings_.write_latency + 1, burst.id, burst.response});
                writer.bursts.pop_front();
            }
            counts_.write_beats++;
        }
        if (*port.aw.valid && *port.aw.ready) {
            writer.bursts.push_back({*port.aw.addr, *port.aw.len + 1u, 0, 0, *port.aw.id, 0});
            counts_.write_bursts++;
        }
    }

    uint64_t cost() const { return static_cast<uint64_t>(beat_) * settings_.bandwidth_den; }
    void refill() {
        if (settings_.bandwidth_num)
            tokens_ = std::min(tokens_ + settings_.bandwidth_num,
                               (readers_.size() + writers_.size()) * cost() + settings_.bandwidth_num);
    }
    void spend() {
        if (settings_.bandwidth_num) tokens_ -= std::min(tokens_, cost());
    }
    bool stalls(uint64_t& random, Channel channel) const {
        if (!settings_.stall[channel]) return false;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return (random >> 24 & 0xFFFF) < settings_.stall[channel];
    }
    uint8_t respond(uint64_t address, uint32_t n) const {
        if (!inside(address, n)) return 3;
        for (const Fault& fault : faults_)
            if (address < fault.limit && address + n > fault.first) return fault.response;
        return 0;
    }

    uint64_t size_;
    uint32_t beat_;
    uint8_t* bytes_ = nullptr;
    uint64_t* written_ = nullptr;
    Settings settings_;
    uint64_t tokens_ = 0, now_ = 0;
    size_t last_ = 0;
    std::vector<Reader> readers_;
    std::vector<Writer> writers_;
    std::vector<Fault> faults_;
    Counts counts_{0, 0, 0, 0};
};

}  // namespace gradloom
