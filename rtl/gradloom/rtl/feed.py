"""Operands of the tokens: bank addresses, crossbars and padding zeros (ETA, section IV-B4, the input network)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.banks import RowBanks
from gradloom.rtl.buses import LoadBus
from gradloom.rtl.channels import load_channels
from gradloom.rtl.colwalk import token_layout
from gradloom.rtl.config import PE_ROWS, PE_TAPS, Config
from gradloom.rtl.isa import Dest, Pattern
from gradloom.rtl.pint import CODE_BITS
from gradloom.rtl.wpu import WPU_CTL

__all__ = ["Feed"]


class Feed(wiring.Component):
    """IBUF and EBUF with their networks: a token becomes the Wpus' ``ctl``, ``x`` and ``e`` ``LATENCY`` cycles later.

    Every (WPU, PE row) asks for one (bank, address); two that ask one bank ask the same address, which the placement of rows
    guarantees (``docs/machine.md`` section 3). So a bank's address is the OR of its requests.

    Members
    -------
    token : ``In(token_layout)``
    load : ``In(LoadBus).array(load_channels)``
    ctl : ``Out(WPU_CTL)``
        For all WPUs.
    x : ``Out(ArrayLayout(ArrayLayout({x0, x1}, 3 G), wpus))``
        Codes of the columns per WPU, index r * G + c.
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
            "token": In(token_layout(config)), "load": In(LoadBus(config)).array(config.load_channels), "ctl": Out(WPU_CTL),
            "x": Out(data.ArrayLayout(data.ArrayLayout(columns, PE_ROWS * config.group), config.wpus)),
            "e": Out(data.ArrayLayout(data.ArrayLayout(data.ArrayLayout(CODE_BITS, PE_TAPS), config.clusters),
                                      config.wpus)),
            "fault": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        g, banks, wpus = config.group, config.row_banks, config.wpus
        token = self.token
        m.submodules.ibuf = ibuf = RowBanks(config, depth=config.ibuf_depth, dest=Dest.IBUF)
        m.submodules.ebuf = ebuf = RowBanks(config, depth=config.ebuf_depth, dest=Dest.EBUF)
        for buffer, dest in ((ibuf, Dest.IBUF), (ebuf, Dest.EBUF)):
            channel, = load_channels(config, dest)
            wiring.connect(m, wiring.flipped(self.load[channel]), buffer.load)

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

        sources = range(PE_ROWS * wpus)
        requests = [Signal(len(sources), name=f"request{b}") for b in range(banks)]
        m.d.comb += [request.eq(Cat(token.read[i] & (token.bank[i] == b) for i in sources))
                     for b, request in enumerate(requests)]
        requested = Signal(banks)
        m.d.sync += requested.eq(Cat(request.any() for request in requests))
        address = [Signal(16, name=f"address{b}", reset_less=True) for b in range(banks)]
        for b, request in enumerate(requests):
            hits = [token.addr[i] & request[i].replicate(16) for i in sources]
            m.d.sync += address[b].eq(_any(hits))
            m.d.comb += ibuf.addr[b].eq(address[b])
        outside = Cat(requested[b] & (address[b] >= config.ibuf_depth) for b in range(banks)).any()

        for w in range(wpus):
            for r in range(PE_ROWS):
                i = PE_ROWS * w + r
                read = select(token.read[i], f"read{i}")[1]
                bank = select(token.bank[i], f"bank{i}")[1]
                beat = Signal(16 * g, name=f"beat{i}")
                with m.If(read), m.Switch(bank):
                    for b in range(banks):
                        with m.Case(b):
                            m.d.comb += beat.eq(ibuf.q[b])
                pairs = Signal(16 * g, name=f"pairs{i}", reset_less=True)
                m.d.sync += pairs.eq(beat)
                for c in range(g):
                    m.d.comb += [self.x[w][r * g + c].x0.eq(pairs.word_select(c, CODE_BITS)),
                                 self.x[w][r * g + c].x1.eq(pairs.word_select(g + c, CODE_BITS))]

        error_address = Signal(16, reset_less=True)
        error_read = Signal()
        m.d.sync += [error_address.eq(token.ea), error_read.eq(token.use & token.wg)]
        outside |= error_read & (error_address >= config.ebuf_depth)
        lane = select(token.lane, "lane")[1]
        taps = select(token.taps, "taps")[1]
        k1 = select(token.sel[1:] == Pattern.K1, "k1")[1]
        ebank = select(token.ebank, "ebank")[1]
        for w in range(wpus):
            mask = select(token.mask[w], f"mask{w}")[1]
            shared = Signal(16 * g, name=f"shared{w}")
            with m.Switch(ebank):
                for k in range(PE_TAPS):
                    with m.Case(k):
                        m.d.comb += shared.eq(ebuf.q[PE_ROWS * w + k])
            for k in range(PE_TAPS):
                bank = PE_ROWS * w + k
                m.d.comb += ebuf.addr[bank].eq(error_address)
                source = Mux(k1, ebuf.q[bank], shared)
                column = Signal(8 * g, name=f"error{w}_{k}")
                with m.If(mask & taps[k]):
                    m.d.comb += column.eq(Mux(lane, source[8 * g:], source[:8 * g]))
                codes = Signal(8 * g, name=f"codes{w}_{k}", reset_less=True)
                m.d.sync += codes.eq(column)
                m.d.comb += [self.e[w][c][k].eq(codes.word_select(c, CODE_BITS)) for c in range(g)]
        m.d.sync += self.fault.eq(outside)
        return m


def _any(values: list[Value]) -> Value:
    """Bitwise OR of the values."""
    total = values[0]
    for value in values[1:]:
        total = total | value
    return total
