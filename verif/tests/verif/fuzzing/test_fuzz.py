"""The fuzzer of the whole machine: a small seeded part of its cases, and trouble planted in the machine that it must notice."""

import dataclasses
import re

import pytest

from gradloom.contracts.isa import Opcode
from gradloom.contracts.regmap import offset, register
from gradloom.sim.rtl_device import RtlDevice
from gradloom.verif.configs import machine_config
from gradloom.verif.fuzzing.bench import Bench, Hang
from gradloom.verif.fuzzing.cases import Draw, Trouble
from gradloom.verif.fuzzing.classes import make_trouble
from gradloom.verif.fuzzing.directed import directed
from gradloom.verif.fuzzing.outcomes import possible
from gradloom.verif.fuzzing.run import run_block

SEED = 20
"""Not that of the published run, so that the suite adds to it."""
CASES = {"nano": 30, "small": 8, "channels": 4}
_ABORT = register("CONTROL").field("abort").mask


@pytest.fixture(scope="module")
def bench():
    """A machine of each name, for all tests."""
    found: dict[str, Bench] = {}

    def get(config: str) -> Bench:
        if config not in found:
            found[config] = Bench(config)
        return found[config]

    yield get
    for one in found.values():
        one.close()


@pytest.mark.parametrize("config", list(CASES))
def test_cases_of_chance(bench, config):
    """Every case ends as its class allows and touches nothing outside its window; the run behind it equals the golden model."""
    block = run_block(bench(config), SEED, 0, "", CASES[config])
    assert len(block.results) == CASES[config]
    assert block.problems == ()


def target(bench: Bench, number: int) -> Trouble:
    """The directed case of chance number ``number``."""
    return directed(Draw(SEED, bench.name, number, bench.scenes, bench.cycles))


@pytest.mark.parametrize("config", list(CASES))
def test_every_code_of_every_engine(bench, config):
    """Each pair that a machine can report is reported by a case made for it (sums of gradients: or the sums fit after all)."""
    machine = bench(config)
    wanted = {f"{unit.name} {code.name.lower()}" for unit, code in possible(machine_config(config))}
    number = 0
    machine.renew()
    while wanted:
        assert number < 2000, f"no case for {wanted}"
        trouble = target(machine, number)
        number += 1
        if trouble.target in wanted:
            outcome = machine.run(trouble)
            assert outcome.problems == ()
            wanted -= {outcome.reported}


class Planted(RtlDevice):
    """A machine with a fault that :attr:`armed` switches on."""

    armed = False

    @staticmethod
    def bench(kind: type["Planted"]) -> Bench:
        return Bench("nano", lambda config, scenes: kind(machine_config(config), dram_bytes=len(scenes[0].image)))


class Restless(Planted):
    """One bit of one byte is wrong behind every second start: the good run's."""

    starts = 0

    def csr_write(self, offset_: int, value: int) -> None:
        super().csr_write(offset_, value)
        self.starts += self.armed and offset_ == offset("CONTROL") and value & 1

    def run(self, max_cycles: int) -> int:
        cycles = super().run(max_cycles)
        if self.armed and self.irq and self.starts == 2:
            self.write(0x1203, bytes([self.read(0x1203, 1)[0] ^ 4]))
        return cycles


class Straying(Planted):
    """A write lands behind the window."""

    def run(self, max_cycles: int) -> int:
        cycles = super().run(max_cycles)
        if self.armed:
            self.write(self.dram_bytes - 5, b"\x00")
        return cycles


class Deaf(Planted):
    """An abort is lost."""

    def csr_write(self, offset_: int, value: int) -> None:
        super().csr_write(offset_, value & ~_ABORT if self.armed and offset_ == offset("CONTROL") else value)


class Misnaming(Planted):
    """ERROR names the engine behind the one that failed."""

    def csr_read(self, offset_: int) -> int:
        value = super().csr_read(offset_)
        if self.armed and offset_ == offset("ERROR") and value & 0xFF:
            value ^= 1 << register("ERROR").field("engine").lsb
        return value


class Misplacing(Planted):
    """ERROR_OFFSET is that of the next command."""

    def csr_read(self, offset_: int) -> int:
        return super().csr_read(offset_) + (24 if self.armed and offset_ == offset("ERROR_OFFSET") else 0)


class Permissive(Planted):
    """A register that needs an idle machine is written while it runs: no error comes back."""

    def csr_write(self, offset_: int, value: int) -> None:
        if not self.armed or offset_ != offset("SEED"):
            super().csr_write(offset_, value)


class Leaky(Planted):
    """An exponent changes behind the host's back."""

    def csr_read(self, offset_: int) -> int:
        return super().csr_read(offset_) ^ (self.armed and offset_ == offset("EXP_VALUE"))


def find(bench: Bench, **wanted: str) -> Trouble:
    """The first case of chance with these properties."""
    for number in range(5000):
        trouble = make_trouble(SEED, bench.name, number, bench.scenes, bench.cycles)
        if all(re.search(text, str(getattr(trouble, name))) for name, text in wanted.items()):
            return trouble
    raise AssertionError(f"no case with {wanted}")


PLANTED = {
    Restless: ({"kind": "memory"}, "the good run behind it left other bytes"),
    Straying: ({"kind": "memory"}, "outside the window"),
    Misnaming: ({"kind": "directed", "target": "ACORE illegal_field"}, "which it cannot|ERROR names"),
    Misplacing: ({"kind": "directed", "target": "LOAD illegal_field"}, "is no command's|ERROR names"),
    Permissive: ({"kind": "registers", "events": f"offset={offset('SEED')}, value=[1-9]"}, "needs an idle machine"),
    Leaky: ({"kind": "memory"}, "other exponents"),
}


@pytest.mark.parametrize("kind", list(PLANTED), ids=lambda kind: kind.__name__.lower())
def test_planted_trouble_is_noticed(kind):
    """The same case is sound on the sound machine and not on the one with the fault: a check that cannot fail proves nothing."""
    wanted, problem = PLANTED[kind]
    bench = Planted.bench(kind)
    try:
        trouble = find(bench, **wanted)
        assert bench.run(trouble).problems == ()
        bench.renew()
        bench.device.armed = True
        assert any(re.search(problem, text) for text in bench.run(trouble).problems)
    finally:
        bench.close()


def test_lost_abort_is_noticed():
    bench = Planted.bench(Deaf)
    try:
        # Without the watchdog, which would end the program in its stead.
        trouble = dataclasses.replace(find(bench, kind="directed", target="SEQ aborted"), registers={"WATCHDOG": 0})
        assert bench.run(trouble).problems == ()
        bench.renew()
        bench.device.armed = True
        with pytest.raises(Hang, match="cycles after an abort"):
            bench.run(trouble)
        block = run_block(bench, SEED, 0, "", 1)
        assert block.problems == (), "a machine that hung is replaced"
    finally:
        bench.close()


def test_a_case_is_a_function_of_seed_machine_and_number(bench):
    nano, small = bench("nano"), bench("small")

    def made(one: Bench, seed: int, name: str, number: int) -> Trouble:
        return make_trouble(seed, name, number, one.scenes, one.cycles)

    for number in range(60):
        assert made(nano, 1, "nano", number) == made(nano, 1, "nano", number)
    assert [made(nano, 1, "nano", n).text for n in range(9)] != [made(nano, 2, "nano", n).text for n in range(9)]
    assert [made(small, 1, "small", n).text for n in range(9)] != [made(small, 1, "nano", n).text for n in range(9)]


def test_a_block_runs_again_the_same(bench):
    """Results do not depend on what the machine did before the block."""
    first, second = (run_block(bench("small"), SEED, 100, "", 6) for _ in range(2))
    assert first.results == second.results


def test_scenes_have_every_command_and_memory(bench):
    """What the fuzzer disturbs and compares is the whole machine: all opcodes, memories, layouts, pools, and patterns but PAIR."""
    for config in CASES:
        found = [instruction for scene in bench(config).scenes for instruction in scene.instructions]

        def values(opcode: Opcode, name: str, commands: list = found) -> set[int]:
            return {instruction[name] for instruction in commands if instruction.opcode == opcode}

        assert {instruction.opcode for instruction in found} == set(Opcode)
        assert values(Opcode.LOAD, "dest") == set(range(9)) and values(Opcode.STORE, "src") == set(range(6))
        assert values(Opcode.CONV, "pattern") == {0, 1, 2} and values(Opcode.RUN, "layout") == {0, 1, 2, 3}
        assert values(Opcode.RUN, "pool") == {0, 1, 2} and values(Opcode.RUN, "xin") == {0, 1}
        units = {instruction.unit(machine_config(config)) for instruction in found if instruction.opcode >> 4}
        assert len(units) == machine_config(config).load_channels + machine_config(config).store_channels + 2
