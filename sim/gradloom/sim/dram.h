// A DRAM behind an AXI4 subordinate port: it only moves bytes.
//
// Reads are answered in order, `latency` cycles after their address at the earliest; a write is answered `write_latency` cycles after
// its last beat. Reads and writes share `bandwidth` bytes a cycle (a rational number; 0 = one read and one write beat a cycle).
// Every channel can stall at random, seeded. Addresses outside the memory, and chosen ranges, answer with an error and move nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <vector>

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

    void set(const Settings& settings) {
        settings_ = settings;
        random_ = settings.seed * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull;
        tokens_ = 0;
    }
    void fail(uint64_t first, uint64_t limit, uint8_t response) { faults_.push_back({first, limit, response}); }
    void fail_nowhere() { faults_.clear(); }
    bool track() {
        if (!written_) written_ = static_cast<uint64_t*>(std::calloc(size_ / beat_ + 1, sizeof(uint64_t)));
        return written_ != nullptr;
    }
    // Cycle in which the beat was last written, 0 = never (or not tracked).
    uint64_t last_write(uint64_t address) const { return written_ && address < size_ ? written_[address / beat_] : 0; }

    // The port protocol per cycle: drive() before the falling edge's evaluation, sample() after it.
    template <class Top> void drive(Top& top) {
        refill();
        top.m_axi_arready = reads_.size() < OUTSTANDING && !stalls(AR);
        top.m_axi_awready = writes_.size() < OUTSTANDING && !stalls(AW);
        const bool want_read = !read_shown_ && !reads_.empty() && reads_.front().due <= now_ && !stalls(R);
        const bool want_write = !writes_.empty() && writes_.front().done < writes_.front().beats && !stalls(W);
        // Whoever was not served last goes first when the bandwidth is short.
        bool read = want_read, write = want_write;
        if (settings_.bandwidth_num) {
            const uint64_t beats = tokens_ / cost();
            if (beats == 0) read = write = false;
            else if (beats == 1 && read && write) (read_last_ ? read : write) = false;
        }
        if (read) {
            Burst& burst = reads_.front();
            const uint8_t response = respond(burst.address, beat_);
            if (response) std::memset(&top.m_axi_rdata, 0, beat_);
            else std::memcpy(&top.m_axi_rdata, bytes_ + burst.address, beat_);
            top.m_axi_rresp = response;
            top.m_axi_rlast = burst.done + 1 == burst.beats;
            top.m_axi_rid = burst.id;
            read_shown_ = true;
            read_last_ = true;
            spend();
        }
        top.m_axi_rvalid = read_shown_;
        top.m_axi_wready = write;
        if (!answer_shown_ && !answers_.empty() && answers_.front().due <= now_ && !stalls(B)) {
            top.m_axi_bresp = answers_.front().response;
            top.m_axi_bid = answers_.front().id;
            answer_shown_ = true;
        }
        top.m_axi_bvalid = answer_shown_;
    }

    template <class Top> void sample(const Top& top, uint64_t cycle) {
        if (top.m_axi_arvalid && top.m_axi_arready) {
            reads_.push_back({top.m_axi_araddr, top.m_axi_arlen + 1u, 0, now_ + settings_.latency + 1, top.m_axi_arid, 0});
            counts_.read_bursts++;
        }
        if (top.m_axi_rvalid && top.m_axi_rready) {
            Burst& burst = reads_.front();
            read_shown_ = false;
            counts_.read_beats++;
            burst.address += beat_;
            if (++burst.done == burst.beats) reads_.pop_front();
        }
        if (top.m_axi_bvalid && top.m_axi_bready) {
            answers_.pop_front();
            answer_shown_ = false;
        }
        if (top.m_axi_wvalid && top.m_axi_wready) {
            Burst& burst = writes_.front();
            const uint8_t response = respond(burst.address, beat_);
            if (!response) {
                uint8_t data[16];
                std::memcpy(data, &top.m_axi_wdata, beat_);
                for (uint32_t i = 0; i < beat_; i++)
                    if (static_cast<uint32_t>(top.m_axi_wstrb) >> i & 1) bytes_[burst.address + i] = data[i];
                if (written_ && top.m_axi_wstrb) written_[burst.address / beat_] = cycle;
            }
            burst.response = std::max(burst.response, response);
            burst.address += beat_;
            if (++burst.done == burst.beats) {
                answers_.push_back({0, 0, 0, now_ + settings_.write_latency + 1, burst.id, burst.response});
                writes_.pop_front();
            }
            counts_.write_beats++;
            read_last_ = false;
            spend();
        }
        if (top.m_axi_awvalid && top.m_axi_awready) {
            writes_.push_back({top.m_axi_awaddr, top.m_axi_awlen + 1u, 0, 0, top.m_axi_awid, 0});
            counts_.write_bursts++;
        }
        now_++;
    }

private:
    struct Burst { uint64_t address; uint32_t beats, done; uint64_t due; uint8_t id, response; };
    struct Fault { uint64_t first, limit; uint8_t response; };
    static constexpr size_t OUTSTANDING = 64;

    uint64_t cost() const { return static_cast<uint64_t>(beat_) * settings_.bandwidth_den; }
    void refill() {
        if (settings_.bandwidth_num)
            tokens_ = std::min(tokens_ + settings_.bandwidth_num, 2 * cost() + settings_.bandwidth_num);
    }
    void spend() {
        if (settings_.bandwidth_num) tokens_ -= std::min(tokens_, cost());
    }
    bool stalls(Channel channel) {
        if (!settings_.stall[channel]) return false;
        random_ ^= random_ << 13;
        random_ ^= random_ >> 7;
        random_ ^= random_ << 17;
        return (random_ >> 24 & 0xFFFF) < settings_.stall[channel];
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
    uint64_t random_ = 1, tokens_ = 0, now_ = 0;
    bool read_shown_ = false, answer_shown_ = false, read_last_ = false;
    std::deque<Burst> reads_, writes_, answers_;
    std::vector<Fault> faults_;
    Counts counts_{0, 0, 0, 0};
};

}  // namespace gradloom
