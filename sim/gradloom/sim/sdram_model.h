// An SDR SDRAM at its pins. It keeps data, and looks in every cycle at what the part's data sheet asks of a controller, and at the
// narrower promises of this project's controller (gradloom.rtl.board.memory.sdram): burst length 1, no auto precharge, DQM high only
// with a WRITE once the part is initialised, a cycle between read data and write data.
//
// Cycles are the controller's. A command that the pins show in a cycle is the memory's in that cycle, and the data of a READ in cycle
// t are on dq_i in cycle t + CL - 1 + capture; in all other cycles dq_i is noise. `capture` is 0 where the memory's clock edge lies
// early in the controller's cycle, 1 where it lies late.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

namespace gradloom {

// Where a Verilated controller keeps its pins; dq_o and dq_i are as wide as a word.
struct SdramPins {
    const uint8_t *cke, *cs_n, *ras_n, *cas_n, *we_n, *ba;
    const uint16_t* a;
    const uint8_t* dqm;
    const void* dq_o;
    const uint8_t* dq_oe;
    void* dq_i;
};

struct SdramSettings {
    uint32_t word_bytes, column_bits, row_bits, bank_bits;
    // Cycles, at least (gradloom.rtl.board.memory.sdram_timing.SdramTiming).
    uint32_t rp, rcd, ras, rc, rfc, rrd, wr, mrd, power_up, init_refreshes;
    uint32_t retention, refresh_gap;  // cycles, at most: for a REFRESH of every row, and from one REFRESH to the next
    uint32_t least_cas, capture;
    uint32_t ignores_columns;         // a column beyond the row is no violation, its high bits are not there
    uint32_t forgets;                 // all data are lost when no REFRESH came for the retention time
};

class Sdram {
public:
    static constexpr int MOST = 32;
    struct Counts { uint64_t reads, writes, activates, precharges, refreshes; };

    explicit Sdram(const SdramSettings& settings) : s_(settings), banks_(1u << settings.bank_bits) {
        bytes_ = static_cast<uint8_t*>(std::calloc(size(), 1));
        if (!bytes_) throw std::bad_alloc();
        refreshed_.resize(size_t{1} << s_.row_bits);
        restart();
    }
    ~Sdram() { std::free(bytes_); }
    Sdram(const Sdram&) = delete;
    Sdram& operator=(const Sdram&) = delete;

    void connect(const SdramPins& pins) { pins_ = pins; }
    uint64_t size() const { return uint64_t{s_.word_bytes} << (s_.column_bits + s_.row_bits + s_.bank_bits); }
    // In the order of the controller's addresses: column, bank, row.
    uint8_t* bytes() { return bytes_; }
    const Counts& counts() const { return counts_; }
    // Rule, bank and cycle of each, one a line; after the first MOST none is kept.
    const std::string& violations() const { return text_; }

    // The port protocol of Dram: drive() before the falling edge's evaluation, sample() after it.
    void drive() {
        noise_ ^= noise_ << 13, noise_ ^= noise_ >> 7, noise_ ^= noise_ << 17;
        uint32_t word = static_cast<uint32_t>(noise_ >> 16);
        const Read& read = reads_[now_ % HISTORY];
        if (read.here && read.cycle == now_) {
            const uint8_t masked = dqm_[(read.command + cas_ - 2) % HISTORY];
            if (masked) violate("DQM", read.bank, "read data are masked");
            for (uint32_t i = 0; i < s_.word_bytes; i++)
                if (!(masked >> i & 1)) word = (word & ~(0xFFu << 8 * i)) | (read.word & 0xFFu << 8 * i);
        }
        std::memcpy(pins_.dq_i, &word, s_.word_bytes);
    }

    void sample(uint64_t cycle, bool reset) {
        cycle_ = cycle;
        if (reset) return restart();
        look();
        now_++;
    }

private:
    static constexpr int64_t LONG_AGO = -(int64_t{1} << 40);
    static constexpr uint32_t HISTORY = 8, ALL_BANKS = 10;
    static constexpr int NO_BANK = -1;

    struct Bank {
        bool open = false;
        uint32_t row = 0;
        int64_t activated = LONG_AGO, precharged = LONG_AGO, written = LONG_AGO;
    };
    struct Read {
        bool here = false;
        uint64_t cycle = 0, command = 0;
        uint32_t word = 0;
        int bank = 0;
    };

    void restart() {
        now_ = 0;
        for (Bank& bank : banks_) bank = Bank{};
        for (Read& read : reads_) read = Read{};
        for (uint8_t& dqm : dqm_) dqm = 0;
        refresh_ = mode_ = activate_ = LONG_AGO;
        precharged_ = loaded_ = lapsed_ = false;
        cas_ = 2;
        refreshes_ = 0;
        busy_until_ = -1;
    }

    void violate(const char* rule, int bank, const char* what) {
        if (found_++ >= MOST) return;
        char line[192], place[16] = "";
        if (bank != NO_BANK) std::snprintf(place, sizeof place, " bank %d:", bank);
        std::snprintf(line, sizeof line, "%sin cycle %llu: %s:%s %s", text_.empty() ? "" : "\n", 1ull * cycle_, rule, place, what);
        text_ += line;
    }
    // Whether `cycles` have passed since an event.
    void after(int64_t event, uint32_t cycles, const char* rule, int bank, const char* what) {
        if (time() - event < cycles) violate(rule, bank, what);
    }
    int64_t time() const { return static_cast<int64_t>(now_); }
    bool initialised() const { return loaded_; }

    void look() {
        const bool selected = *pins_.cke && !*pins_.cs_n;
        const int command = selected ? *pins_.ras_n << 2 | *pins_.cas_n << 1 | *pins_.we_n : 7;
        const int bank = *pins_.ba & static_cast<int>(banks_.size() - 1);
        dqm_[now_ % HISTORY] = *pins_.dqm;
        if (!*pins_.cs_n && !*pins_.cke) violate("CKE", NO_BANK, "a command while CKE is low");
        if (command != 7) {
            if (now_ < s_.power_up) violate("power-up", NO_BANK, "a command before the clock was stable for long enough");
            after(refresh_, s_.rfc, "tRFC", NO_BANK, "a command too soon after REFRESH");
            after(mode_, s_.mrd, "tMRD", NO_BANK, "a command too soon after LOAD MODE REGISTER");
        }
        data_pins(command, bank);
        switch (command) {
        case 0: load_mode(); break;
        case 1: refresh(); break;
        case 2: precharge(bank); break;
        case 3: activate(bank); break;
        case 4: column(bank, true); break;
        case 5: column(bank, false); break;
        case 6: violate("command", NO_BANK, "BURST TERMINATE"); break;
        default: break;
        }
        if (initialised() && !lapsed_ && time() - std::max(refresh_, mode_) > s_.refresh_gap) {
            lapsed_ = true;
            violate("tREFI", NO_BANK, "no REFRESH for too long");
        }
        if (s_.forgets && initialised() && time() - refresh_ == static_cast<int64_t>(s_.retention))
            for (uint64_t i = 0; i < size(); i++) bytes_[i] = static_cast<uint8_t>(~bytes_[i]);
    }

    void data_pins(int command, int bank) {
        const bool write = command == 4;
        if (write && !*pins_.dq_oe) violate("data pins", bank, "a WRITE whose data nobody drives");
        // From the READ to its data in cycle t + CL, and a cycle that parts them from the controller's.
        if (*pins_.dq_oe && time() <= busy_until_) violate("bus contention", bank, "the data pins are driven beside read data, or right after");
        if (initialised() && *pins_.dqm && !write) violate("DQM", bank, "high without a WRITE");
    }

    void load_mode() {
        all_closed("LOAD MODE REGISTER");
        const uint32_t value = *pins_.a;
        cas_ = value >> 4 & 7;
        if (value & ~0x70u || *pins_.ba) violate("mode", NO_BANK, "not burst length 1, sequential, standard operation");
        if (cas_ != 2 && cas_ != 3) {
            violate("mode", NO_BANK, "CAS latency is neither 2 nor 3");
            cas_ = 3;
        }
        if (cas_ < s_.least_cas) violate("CAS latency", NO_BANK, "too small for the clock");
        mode_ = time();
        if (!loaded_) refreshed_.assign(refreshed_.size(), mode_);  // no row holds data before
        loaded_ = true;
        if (!precharged_ || refreshes_ < s_.init_refreshes) violate("power-up", NO_BANK, "LOAD MODE REGISTER before PRECHARGE ALL and enough REFRESH");
    }

    void refresh() {
        all_closed("REFRESH");
        for (size_t n = 0; n < banks_.size(); n++) after(banks_[n].activated, s_.rc, "tRC", static_cast<int>(n), "REFRESH too soon after ACTIVATE");
        int64_t& row = refreshed_[refreshes_++ % refreshed_.size()];
        if (initialised() && time() - row > static_cast<int64_t>(s_.retention))
            violate("refresh count", NO_BANK, "a row was not refreshed within the retention time");
        row = time();
        refresh_ = time();
        lapsed_ = false;
        counts_.refreshes++;
    }

    void all_closed(const char* command) {
        for (size_t n = 0; n < banks_.size(); n++) {
            const int bank = static_cast<int>(n);
            if (banks_[n].open) violate("bank state", bank, (std::string(command) + " while it is open").c_str());
            after(banks_[n].precharged, s_.rp, "tRP", bank, (std::string(command) + " too soon after PRECHARGE").c_str());
        }
    }

    void precharge(int only) {
        const bool all = *pins_.a >> ALL_BANKS & 1;
        for (size_t n = 0; n < banks_.size(); n++) {
            const int number = static_cast<int>(n);
            Bank& bank = banks_[n];
            if (!all && number != only) continue;
            if (bank.open) {
                after(bank.activated, s_.ras, "tRAS", number, "PRECHARGE too soon after ACTIVATE");
                after(bank.written, s_.wr, "tWR", number, "PRECHARGE too soon after WRITE");
                bank.precharged = time();
            } else if (all) {
                bank.precharged = time();
            }
            bank.open = false;
        }
        precharged_ |= all;
        counts_.precharges++;
    }

    void activate(int number) {
        Bank& bank = banks_[number];
        if (!initialised()) violate("power-up", number, "ACTIVATE before LOAD MODE REGISTER");
        if (bank.open) violate("bank state", number, "ACTIVATE while it is open");
        after(bank.precharged, s_.rp, "tRP", number, "ACTIVATE too soon after PRECHARGE");
        after(bank.activated, s_.rc, "tRC", number, "ACTIVATE too soon after ACTIVATE");
        if (activated_bank_ != number) after(activate_, s_.rrd, "tRRD", number, "ACTIVATE too soon after ACTIVATE of another bank");
        const uint32_t row = *pins_.a;
        if (row >> s_.row_bits) violate("row", number, "ACTIVATE of a row that is not there");
        bank.open = true;
        bank.row = row & ((1u << s_.row_bits) - 1);
        bank.activated = activate_ = time();
        activated_bank_ = number;
        counts_.activates++;
    }

    void column(int number, bool write) {
        Bank& bank = banks_[number];
        if (!bank.open) return violate("bank state", number, write ? "WRITE while it is closed" : "READ while it is closed");
        after(bank.activated, s_.rcd, "tRCD", number, write ? "WRITE too soon after ACTIVATE" : "READ too soon after ACTIVATE");
        if (*pins_.a >> ALL_BANKS & 1) violate("auto precharge", number, write ? "WRITE with A10 high" : "READ with A10 high");
        const uint32_t mask = (1u << s_.column_bits) - 1;
        const uint32_t column = *pins_.a & ~(1u << ALL_BANKS);
        if (column > mask && !s_.ignores_columns) violate("row end", number, write ? "WRITE beyond the row" : "READ beyond the row");
        const uint64_t word = ((uint64_t{bank.row} << s_.bank_bits | static_cast<uint32_t>(number)) << s_.column_bits) | (column & mask);
        uint8_t* place = bytes_ + word * s_.word_bytes;
        if (write) {
            const uint8_t* data = static_cast<const uint8_t*>(pins_.dq_o);
            for (uint32_t i = 0; i < s_.word_bytes; i++)
                if (!(*pins_.dqm >> i & 1)) place[i] = data[i];
            bank.written = time();
            counts_.writes++;
            return;
        }
        Read& read = reads_[(now_ + cas_ - 1 + s_.capture) % HISTORY];
        read = {true, now_ + cas_ - 1 + s_.capture, now_, 0, number};
        std::memcpy(&read.word, place, s_.word_bytes);
        busy_until_ = time() + cas_ + 1;
        counts_.reads++;
    }

    SdramSettings s_;
    SdramPins pins_{};
    uint8_t* bytes_ = nullptr;
    std::vector<Bank> banks_;
    std::vector<int64_t> refreshed_;
    Read reads_[HISTORY];
    uint8_t dqm_[HISTORY] = {};
    uint64_t now_ = 0, cycle_ = 0, noise_ = 0x9E3779B97F4A7C15ull;
    int64_t refresh_ = LONG_AGO, mode_ = LONG_AGO, activate_ = LONG_AGO, busy_until_ = -1;
    int activated_bank_ = NO_BANK, found_ = 0;
    uint32_t cas_ = 2;
    uint64_t refreshes_ = 0;
    bool precharged_ = false, loaded_ = false, lapsed_ = false;
    std::string text_;
    Counts counts_{0, 0, 0, 0, 0};
};

}  // namespace gradloom
