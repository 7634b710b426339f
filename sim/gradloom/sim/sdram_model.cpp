// The SDRAM model behind a C interface, for benches that are not Verilated (driven by gradloom.sim.sdram_model through ctypes).
#include <memory>

#include "sdram_model.h"

using namespace gradloom;

namespace {

struct Bench {
    uint8_t cke = 0, cs_n = 1, ras_n = 1, cas_n = 1, we_n = 1, ba = 0, dqm = 0, dq_oe = 0;
    uint16_t a = 0;
    uint32_t dq_o = 0, dq_i = 0;
    uint64_t cycle = 0;
    Sdram sdram;

    explicit Bench(const SdramSettings& settings) : sdram(settings) {
        sdram.connect({&cke, &cs_n, &ras_n, &cas_n, &we_n, &ba, &a, &dqm, &dq_o, &dq_oe, &dq_i});
    }
};

Bench& bench(void* self) { return *static_cast<Bench*>(self); }

}  // namespace

extern "C" {

void* sdram_new(const SdramSettings* settings) {
    try {
        return new Bench(*settings);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void sdram_delete(void* self) { delete &bench(self); }

// One cycle: what the controller's registers show, `control` = dq_oe, we_n, cas_n, ras_n, cs_n, cke from its low end. Returns dq_i.
uint32_t sdram_cycle(void* self, uint32_t control, uint32_t ba, uint32_t a, uint32_t dqm, uint32_t dq_o, int reset) {
    Bench& b = bench(self);
    b.dq_oe = control & 1, b.we_n = control >> 1 & 1, b.cas_n = control >> 2 & 1, b.ras_n = control >> 3 & 1;
    b.cs_n = control >> 4 & 1, b.cke = control >> 5 & 1;
    b.ba = static_cast<uint8_t>(ba), b.a = static_cast<uint16_t>(a), b.dqm = static_cast<uint8_t>(dqm), b.dq_o = dq_o;
    b.sdram.drive();
    b.sdram.sample(b.cycle++, reset);
    return b.dq_i;
}

const char* sdram_violations(void* self) { return bench(self).sdram.violations().c_str(); }

uint64_t sdram_size(void* self) { return bench(self).sdram.size(); }

uint8_t* sdram_bytes(void* self) { return bench(self).sdram.bytes(); }

void sdram_counts(void* self, uint64_t* counts) { std::memcpy(counts, &bench(self).sdram.counts(), sizeof(Sdram::Counts)); }

}  // extern "C"
