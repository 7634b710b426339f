"""Partial sums: read-modify-write at one window a cycle, double-buffered for the A-Core (``docs/machine.md`` section 4)."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Pattern
from gradloom.rtl import shared_module
from gradloom.rtl.ccore.banks import address_bits
from gradloom.rtl.ccore.column_sequencer import array_control_layout
from gradloom.rtl.ccore.wpu import WPU_OUTPUTS
from gradloom.rtl.core_reads import PsumRequest
from gradloom.rtl.ecp5 import ChosenSum
from gradloom.rtl.memories import cleared_read, memory_apart

__all__ = ["HALVES", "PSUM_BANKS", "PsumControl", "PsumStore", "psum_control_layout"]

PSUM_BANKS = 4
HALVES = 2


def psum_control_layout(config: Config) -> data.StructLayout:
    """What every :class:`PsumStore` gets from :class:`PsumControl`, each field in its own cycle.

    Cycle -1: ``read`` addresses of each half, its own or the A-Core's. Cycle 0 (sums arrive): ``source`` output per bank,
    ``fresh``, ``half``. Cycle 1: ``we``, ``write`` addresses, ``write_half``. One cycle behind a read of the A-Core: the bank per
    lane that it asked for.

    With ``family = "ecp5"`` a bank that is read with ``clear`` of its half gives 0 instead, so ``half`` may be the one that the
    A-Core does not read, and ``out`` has a bit per lane, half and bank in place of ``out_bank``.
    """
    addresses = data.ArrayLayout(address_bits(config.psum_depth), PSUM_BANKS)
    of_cells = {"clear": HALVES, "out": data.ArrayLayout(data.ArrayLayout(PSUM_BANKS, HALVES), 2)}
    return data.StructLayout({"read": data.ArrayLayout(addresses, HALVES), "source": data.ArrayLayout(2, PSUM_BANKS),
                              "fresh": 1, "half": 1, "we": PSUM_BANKS, "write": addresses, "write_half": 1,
                              "out_bank": data.ArrayLayout(2, 2)} | (of_cells if config.family == "ecp5" else {}))


class PsumControl(wiring.Component):
    """Addresses of the partial sums, delayed along the array, and those of the A-Core's reads.

    The same address recurs only in a later step, of this command or of one that adds to it in the same order (K3 behind
    PAIR: two windows for one), and swap tokens are at least 3 cycles apart
    (:class:`gradloom.rtl.ccore.weight_network.WeightNetwork`); a sum is written 2 cycles after its old value was read and can be
    read 1 cycle after that: no forwarding is needed.

    Parameters
    ----------
    latency : :class:`int`
        Cycles from a token to its sums, at least 2.

    Members
    -------
    token : ``In(array_control_layout)``
    read : ``In(PsumRequest())``
        The A-Core's read of all stores at once; the WPU is chosen among what they give. Each half's read ports serve the C-Core or
        the A-Core: they work on different halves.
    control : ``Out(psum_control_layout)``
    mask : ``Out(wpus)``
        WPUs that take ``control.we``.
    clash : ``Out(1)``
        The A-Core reads the half that the C-Core reads.
    fault : ``Out(1)``
        An address beyond the buffer; nothing is written there.
    """

    def __init__(self, config: Config, *, latency: int) -> None:
        self.config = config
        self.latency = latency
        super().__init__({"token": In(array_control_layout(config)), "read": In(PsumRequest()),
                          "control": Out(psum_control_layout(config)), "mask": Out(config.wpus), "clash": Out(1),
                          "fault": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        bits = address_bits(self.config.psum_depth)
        token = self.token
        k1 = token.sel[1:] == Pattern.K1
        beyond = token.store & ((token.pa + k1) >= self.config.psum_depth)
        m.d.sync += self.fault.eq(beyond)

        payload = data.StructLayout({"addr": bits, "odd": 1, "group": 1, "fresh": 1, "pattern": 2, "half": 1,
                                     "mask": self.config.wpus})
        stages = self.latency - 1
        stores = [Signal(name=f"store{i}") for i in range(stages)]
        values = [Signal(payload, name=f"value{i}", reset_less=True) for i in range(stages)]
        m.d.sync += [stores[0].eq(token.store & ~beyond), values[0].pattern.eq(token.sel[1:]), values[0].half.eq(token.half),
                     values[0].addr.eq(token.pa[:bits]), values[0].odd.eq(token.odd), values[0].group.eq(token.group),
                     values[0].fresh.eq(token.fresh), values[0].mask.eq(token.mask)]
        for i in range(1, stages):
            m.d.sync += [stores[i].eq(stores[i - 1]), values[i].eq(values[i - 1])]
        store, value = stores[-1], values[-1]

        addresses = Signal(data.ArrayLayout(bits, PSUM_BANKS))
        used = Signal(PSUM_BANKS)
        source = Signal(data.ArrayLayout(2, PSUM_BANKS))
        m.d.comb += [addresses[b].eq(value.addr) for b in range(PSUM_BANKS)]
        # Outputs of the Wpu: K3 has its sum in 1, BP2 in each bank's own, K1 those of group k in 1 + k, PAIR its two in 1 and 2.
        with m.Switch(value.pattern):
            with m.Case(Pattern.BP2):
                m.d.comb += [used.eq(0b1111), *(source[b].eq(b) for b in range(PSUM_BANKS))]
            with m.Case(Pattern.K1):
                with m.If(value.odd):
                    m.d.comb += [used.eq(0b1101), source[2].eq(1), source[3].eq(2), source[0].eq(3),
                                 addresses[0].eq(value.addr + 1)]
                with m.Else():
                    m.d.comb += [used.eq(0b0111), *(source[b].eq(1 + b) for b in range(3)), addresses[2].eq(value.addr + 1)]
            with m.Case(Pattern.PAIR):
                m.d.comb += [used.eq(Mux(value.group, 0b1100, 0b0011)), *(source[b].eq(1 + b % 2) for b in range(PSUM_BANKS))]
            with m.Default():
                m.d.comb += [used.eq(1 << Cat(value.odd, value.group)), *(source[b].eq(1) for b in range(PSUM_BANKS))]

        # Cycle 0: the sums arrive; cycle 1: they are written.
        source0 = Signal.like(source, reset_less=True)
        fresh0 = Signal(reset_less=True)
        used0, used1 = Signal(PSUM_BANKS), Signal(PSUM_BANKS)
        addresses0, addresses1 = Signal.like(addresses, reset_less=True), Signal.like(addresses, reset_less=True)
        mask0, mask1 = (Signal.like(value.mask, name=f"mask{i}", reset_less=True) for i in range(2))
        half0, half1 = Signal(reset_less=True), Signal(reset_less=True)
        m.d.sync += [source0.eq(source), fresh0.eq(value.fresh), used0.eq(used & store.replicate(PSUM_BANKS)),
                     used1.eq(used0), addresses0.eq(addresses), addresses1.eq(addresses0), mask0.eq(value.mask),
                     mask1.eq(mask0), half0.eq(value.half), half1.eq(half0)]
        of_cells = self.config.family == "ecp5"
        half = self._clears(m, value) if of_cells else half0
        m.d.comb += [
            self.control.half.eq(half), self.control.write_half.eq(half1), self.control.source.eq(source0),
            self.control.fresh.eq(fresh0), self.control.we.eq(used1), self.control.write.eq(addresses1),
            self.mask.eq(mask1)]

        read = self.read
        own = store & ~value.fresh
        m.d.comb += self.clash.eq(read.en & own & (read.half == value.half))
        for h in range(HALVES):
            for b in range(PSUM_BANKS):
                asked = Mux(read.bank0 == b, read.addr0, read.addr1)
                m.d.comb += self.control.read[h][b].eq(Mux(read.en & (read.half == h), asked, addresses[b]))
        out_bank = Signal(data.ArrayLayout(2, 2), reset_less=True)
        m.d.sync += [out_bank[0].eq(read.bank0), out_bank[1].eq(read.bank1)]
        m.d.comb += self.control.out_bank.eq(out_bank)
        if of_cells:
            out = Signal.like(self.control.out, reset_less=True)
            m.d.sync += [out[lane][h][b].eq((read.half == h) & (bank == b))
                         for lane, bank in enumerate((read.bank0, read.bank1)) for h in range(HALVES) for b in range(PSUM_BANKS)]
            m.d.comb += self.control.out.eq(out)
        return m

    def _clears(self, m: Module, value: data.View) -> Signal:
        """Drive ``clear``, never of a half that the A-Core reads. Returns ``half``."""
        taken, late = Signal(), Signal(reset_less=True)
        m.d.comb += [taken.eq(value.half ^ (value.fresh & self.read.en & (self.read.half == value.half))),
                     *(self.control.clear[h].eq(value.fresh & (taken == h)) for h in range(HALVES))]
        m.d.sync += late.eq(taken)
        return late


class PsumStore(wiring.Component):
    """The partial sums of one cluster of one WPU: 2 halves x 4 banks x ``psum_depth``.

    Members
    -------
    control : ``In(psum_control_layout)``
    enable : ``In(1)``
        This WPU has a unit (with ``control.we``).
    sums : ``In(ArrayLayout(signed(psum_width), 4))``
        Outputs of the Wpu in cycle 0.
    total : ``Out(ArrayLayout(signed(psum_width), 4))``
        Cycle 1: what is written per bank.
    q : ``Out(ArrayLayout(ArrayLayout(signed(psum_width), 2), 2))``
        The A-Core's two lanes, one cycle after ``control.read``, from each half; with ``family = "ecp5"`` 0 from the other one.
    ovf : ``Out(1)``
        A sum that was written overflowed.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        width = signed(config.psum_width)
        super().__init__({
            "control": In(psum_control_layout(config)), "enable": In(1), "sums": In(data.ArrayLayout(width, WPU_OUTPUTS)),
            "total": Out(data.ArrayLayout(width, PSUM_BANKS)),
            "q": Out(data.ArrayLayout(data.ArrayLayout(width, HALVES), 2)), "ovf": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        width, depth = self.config.psum_width, self.config.psum_depth
        control, of_cells = self.control, self.config.family == "ecp5"
        overflows = []
        read_out = []
        for b in range(PSUM_BANKS):
            total = Signal(signed(width), name=f"total{b}", reset_less=True)
            overflow = Signal(name=f"overflow{b}", reset_less=True)
            halves = []
            for h in range(HALVES):
                m.submodules[f"bank{h}_{b}"] = memory = memory_apart(signed(width), depth, self.config.family)
                port, write = None if of_cells else memory.read_port(), memory.write_port()
                m.d.comb += [
                    *([port.en.eq(1), port.addr.eq(control.read[h][b])] if port else []),
                    write.en.eq(control.we[b] & self.enable & (control.write_half == h)), write.addr.eq(control.write[b]),
                    write.data.eq(total)]
                halves.append(port.data if port else
                              cleared_read(m, memory, f"read{h}_{b}", control.read[h][b], control.clear[h]))
            old = Mux(control.fresh, 0, Mux(control.half, halves[1], halves[0]))
            new = self._source(m, b)
            wide = Signal(signed(width + 1), name=f"wide{b}")
            if of_cells:
                size = width + 1, width + 1
                adder = shared_module.add(m, f"adder{b}", "gradloom_ecp5_sum", ChosenSum(*size), size)
                m.d.comb += [adder.a.eq(new), adder.b.eq(halves[1]), adder.c.eq(halves[0]), adder.own.eq(control.half),
                             wide.eq(adder.s)]
            else:
                m.d.comb += wide.eq(old + new)
            m.d.sync += [total.eq(wide), overflow.eq(wide[width] ^ wide[width - 1])]
            m.d.comb += self.total[b].eq(total)
            overflows.append(overflow & control.we[b])
            read_out.append(halves)
        m.d.sync += self.ovf.eq(Cat(overflows).any() & self.enable)
        for lane in range(2):
            for h in range(HALVES):
                if of_cells:
                    asked = [halves[h] & control.out[lane][h][b].replicate(width) for b, halves in enumerate(read_out)]
                    m.d.comb += self.q[lane][h].eq(asked[0] | asked[1] | (asked[2] | asked[3]))
                else:
                    m.d.comb += self.q[lane][h].eq(Array(halves[h] for halves in read_out)[control.out_bank[lane]])
        return m

    def _source(self, m: Module, b: int) -> Signal:
        """The output of the Wpu that bank ``b`` takes; only the pairs that a layout uses exist."""
        new = Signal(signed(self.config.psum_width), name=f"new{b}")
        with m.Switch(self.control.source[b]):
            for output in ((0, 1, 3), (1, 2), (1, 2, 3), (1, 2, 3))[b]:
                with m.Case(output):
                    m.d.comb += new.eq(self.sums[output])
        return new
