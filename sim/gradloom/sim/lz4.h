// The two functions of LZ4 that Verilator's waveform writer calls, for machines without liblz4's development files.
//
// A block of literals alone is a valid LZ4 block, so every waveform viewer reads the result; it is merely not smaller.
#pragma once

#include <cstring>

inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

inline int LZ4_compress_default(const char* source, char* target, int size, int capacity) {
    if (capacity < LZ4_compressBound(size)) return 0;
    char* at = target;
    *at++ = static_cast<char>((size < 15 ? size : 15) << 4);
    if (size >= 15) {
        int rest = size - 15;
        for (; rest >= 255; rest -= 255) *at++ = static_cast<char>(255);
        *at++ = static_cast<char>(rest);
    }
    std::memcpy(at, source, size);
    return static_cast<int>(at - target) + size;
}
