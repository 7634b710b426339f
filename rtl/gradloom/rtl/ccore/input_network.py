"""Operands of the tokens: bank addresses, crossbars and padding zeros (ETA, section IV-B4, the input network)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.contracts.engines import load_channels
from gradloom.contracts.isa import Dest, Pattern
from gradloom.rtl.ccore.banks import RowBanks
from gradloom.rtl.ccore.column_sequencer import array_control_layout
from gradloom.rtl.ccore.wpu import WPU_CTL
from gradloom.rtl.memory_path.buses import LoadBus
from gradloom.rtl.pint import CODE_BITS

__all__ = ["InputNetwork"]


class InputNetwork(wiring.Component):
    """IBUF and EBUF with their networks: a token becomes the Wpus' ``ctl``, ``x`` and ``e`` ``LATENCY`` cycles later.

    Every (WPU, PE row) asks for one (bank, address). The placement of rows (``docs/machine.md`` section 3) guarantees that two that
    ask one bank ask the same address, so a bank's address is the OR of its requests; and that PE rows of one WPU that ask two
    banks ask banks of two residues modulo 3 (banks b, b + 1, b + 2 of 3 ``wpus``, or 3 b + r). So the crossbar has two stages of
    three to one: for each WPU and residue a bank, for each PE row a residue. Before it the lap's channels are taken.

    Members
    -------
    token : ``In(array_control_layout)``
    load : ``In(LoadBus).array(load_channels)``
    ctl : ``Out(WPU_CTL)``
        For all WPUs.
    x : ``Out(ArrayLayout(ArrayLayout({x0, x1}, 3 cols), wpus))``
        Codes of the columns per WPU, index r * ``cols`` + c: the channels of the token's lap.
    e : ``Out(ArrayLayout(ArrayLayout(ArrayLayout(8, 3), clusters), wpus))``
        Codes of the errors per WPU, cluster and tap; 0 for a WPU without unit, so that it may accumulate.
    fault : ``Out(1)``
        An address beyond its buffer was read.
    """

    LATENCY = 3

    def __init__(self, config: Config) -> None:
        self.config = config
        columns = data.StructLayout({"x0": CODE_BITS, "x1": CODE_BITS})
        super().__init__({
            "token": In(array_control_layout(config)), "load": In(LoadBus(config)).array(config.load_channels), "ctl": Out(WPU_CTL),
            "x": Out(data.ArrayLayout(data.ArrayLayout(columns, PE_ROWS * config.cols), config.wpus)),
            "e": Out(data.ArrayLayout(data.ArrayLayout(data.ArrayLayout(CODE_BITS, PE_TAPS), config.clusters),
                                      config.wpus)),
            "fault": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        g, cols, banks, wpus = config.group, config.cols, config.row_banks, config.wpus
        token = self.token
        m.submodules.ibuf = ibuf = RowBanks(config, depth=config.ibuf_depth, dest=Dest.IBUF)
        m.submodules.ebuf = ebuf = RowBanks(config, depth=config.ebuf_depth, dest=Dest.EBUF)
        for buffer, dest in ((ibuf, Dest.IBUF), (ebuf, Dest.EBUF)):
            for bus, channel in zip(buffer.load, load_channels(config, dest), strict=True):
                wiring.connect(m, wiring.flipped(self.load[channel]), bus)

        ctl = [token] + [Signal(WPU_CTL, name=f"ctl{i}") for i in range(1, self.LATENCY + 1)]
        for i in range(self.LATENCY):
            m.d.sync += [ctl[i + 1][name].eq(ctl[i][name]) for name in WPU_CTL.members]
        m.d.comb += self.ctl.eq(ctl[-1])

        def select(value: Value, name: str) -> list[Signal]:
            """Two copies of a select, one and two cycles after the token."""
            one = Signal(value.shape(), name=f"{name}1", reset_less=True)
            two = Signal(value.shape(), name=f"{name}2", reset_less=True)
            m.d.sync += [one.eq(value), two.eq(one)]
            return [one, two]

        def codes_of(beat: Value, lap: int) -> Value:
            """Codes of a lap's channels: of the even column, then of the odd one."""
            return Cat(beat.word_select(lane * config.laps + lap, 8 * cols) for lane in range(2))

        inputs = list(ibuf.q)
        if config.laps > 1:
            lap = select(token.lap, "lap")[1]
            inputs = [Mux(lap, codes_of(beat, 1), codes_of(beat, 0)) for beat in inputs]

        # Bank = 3 * place + residue. Stage 1: (WPU, residue) -> place; stage 2: PE row -> residue, or none where it reads 0.
        # The rows of a single WPU that are read, are read in the same tokens, so what else a bank is asked for does not matter.
        asks = token.asks if config.family == "ecp5" and wpus == 1 else token.read
        none = PE_ROWS
        address = [Signal(16, name=f"address{b}", reset_less=True) for b in range(banks)]
        requested, requests = Signal(banks), [[] for _ in range(banks)]
        for w in range(wpus):
            residues = [Signal(2, name=f"residue{w}_{r}") for r in range(PE_ROWS)]
            places = [Signal(range(max(2, wpus)), name=f"place{w}_{r}") for r in range(PE_ROWS)]
            for r in range(PE_ROWS):
                with m.Switch(token.bank[PE_ROWS * w + r]):
                    for b in range(banks):
                        with m.Case(b):
                            m.d.comb += [places[r].eq(b // PE_ROWS), residues[r].eq(b % PE_ROWS)]
                with m.If(~asks[PE_ROWS * w + r]):
                    m.d.comb += residues[r].eq(none)
            chosen = []
            for s in range(PE_ROWS):
                rows = [residue == s for residue in residues]
                place = Signal.like(places[0], name=f"place_of{w}_{s}")
                row_address = Signal(16, name=f"row_address{w}_{s}")
                m.d.comb += [
                    place.eq(_any([value & row.replicate(len(value)) for row, value in zip(rows, places, strict=True)])),
                    row_address.eq(_any([token.addr[PE_ROWS * w + r] & row.replicate(16) for r, row in enumerate(rows)]))]
                for p in range(wpus):
                    requests[PE_ROWS * p + s].append((Cat(rows).any() & (place == p), row_address))
                late = select(place, f"place{w}_{s}_")[1]
                beat = Signal(16 * cols, name=f"beat{w}_{s}")
                with m.Switch(late):
                    for p in range(wpus):
                        with m.Case(p):
                            m.d.comb += beat.eq(inputs[PE_ROWS * p + s])
                chosen.append(beat)
            for r in range(PE_ROWS):
                taken = Mux(token.read[PE_ROWS * w + r], residues[r], none) if config.family == "ecp5" else residues[r]
                late = select(taken, f"residue{w}_{r}_")[1]
                beat = Signal(16 * cols, name=f"shifted{w}_{r}")
                with m.Switch(late):
                    for s in range(PE_ROWS):
                        with m.Case(s):
                            m.d.comb += beat.eq(chosen[s])
                pairs = Signal(16 * cols, name=f"pairs{w}_{r}", reset_less=True)
                m.d.sync += pairs.eq(beat)
                for c in range(cols):
                    m.d.comb += [self.x[w][r * cols + c].x0.eq(pairs.word_select(c, CODE_BITS)),
                                 self.x[w][r * cols + c].x1.eq(pairs.word_select(cols + c, CODE_BITS))]
        for b in range(banks):
            asked = Cat(hit for hit, _ in requests[b]).any()
            if config.family == "ecp5":
                asked &= token.read.any()
            m.d.sync += [requested[b].eq(asked),
                         address[b].eq(_any([value & hit.replicate(16) for hit, value in requests[b]]))]
            m.d.comb += ibuf.addr[b].eq(address[b])
        outside = Cat(requested[b] & (address[b] >= config.ibuf_depth) for b in range(banks)).any()

        error_address = Signal(16, reset_less=True)
        error_read = Signal()
        m.d.sync += [error_address.eq(token.ea), error_read.eq(token.use & token.wg)]
        outside |= error_read & (error_address >= config.ebuf_depth)
        lane = select(token.lane, "lane")[1]
        k1 = token.sel[1:] == Pattern.K1
        for w in range(wpus):
            columns = []
            for k in range(PE_TAPS):
                bank = PE_ROWS * w + k
                column = Signal(8 * g, name=f"column{bank}")
                m.d.comb += [ebuf.addr[bank].eq(error_address),
                             column.eq(Mux(lane, ebuf.q[bank][8 * g:], ebuf.q[bank][:8 * g]))]
                columns.append(column)
            for k in range(PE_TAPS):
                bank = Mux(token.mask[w] & token.taps[k], Mux(k1, k, token.ebank), none)
                error = Signal(8 * g, name=f"error{w}_{k}")
                with m.Switch(select(bank, f"ebank{w}_{k}_")[1]):
                    for b in range(PE_TAPS):
                        with m.Case(b):
                            m.d.comb += error.eq(columns[b])
                codes = Signal(8 * g, name=f"codes{w}_{k}", reset_less=True)
                m.d.sync += codes.eq(error)
                m.d.comb += [self.e[w][c][k].eq(codes.word_select(c, CODE_BITS)) for c in range(g)]
        m.d.sync += self.fault.eq(outside)
        return m


def _any(values: list[Value]) -> Value:
    """Bitwise OR of the values."""
    total = values[0]
    for value in values[1:]:
        total = total | value
    return total
