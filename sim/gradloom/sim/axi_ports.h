// The signals of a machine's ports as Verilator shows them; data and strobes of a manager are as wide as a beat.
#pragma once

#include <cstdint>

namespace gradloom {

struct AddressChannel {
    uint8_t *valid, *ready, *id, *len, *size, *burst, *cache, *prot;
    uint32_t* addr;
};
struct ReadPort {
    const char* name;
    AddressChannel ar;
    uint8_t *rvalid, *rready, *rid, *rresp, *rlast;
    void* rdata;
};
struct WritePort {
    const char* name;
    AddressChannel aw;
    uint8_t *wvalid, *wready, *wlast, *bvalid, *bready, *bid, *bresp;
    void *wdata, *wstrb;
};
// The machine is the subordinate.
struct LitePort {
    const char* name;
    uint8_t *awvalid, *awready, *wvalid, *wready, *bvalid, *bready, *bresp, *arvalid, *arready, *rvalid, *rready, *rresp;
    uint32_t* rdata;
};

}  // namespace gradloom
