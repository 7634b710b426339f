"""One cluster of the array: what it takes beside its PEs to compute one output channel of a group (ETA, section IV-B3).

The PEs themselves are in :class:`gradloom.rtl.ccore.wpu.Wpu`: with double-pumped MACs those of two clusters are one unit.
"""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.rtl import shared_module
from gradloom.rtl.ccore.abs_accumulator import SUM_BITS
from gradloom.rtl.ccore.mac import factor_shape
from gradloom.rtl.ccore.plane_l1_sums import PlaneSumStore, plane_sum_control_layout, plane_sum_read_layout
from gradloom.rtl.ccore.psum import HALVES, PsumStore, psum_control_layout
from gradloom.rtl.ccore.window_registers import WeightRegisters
from gradloom.rtl.ccore.wpu import WPU_OUTPUTS
from gradloom.rtl.core_reads import LANES
from gradloom.rtl.pint import CODE_BITS

__all__ = ["Cluster"]


class Cluster(wiring.Component):
    """Weights of all WPUs, and of each WPU partial sums and first-pass sums.

    Members
    -------
    load, w : ``In(3)``, ``In(ArrayLayout(8, 3 cols))``; swap : ``In(1)`` -> active : ``Out(...)``
        Weights, as :class:`gradloom.rtl.ccore.window_registers.WeightRegisters` has them.
    sums : ``In(ArrayLayout(ArrayLayout(signed(psum_width), 4), wpus))``
        Outputs of the WPUs, in cycle 0 of :func:`gradloom.rtl.ccore.psum.psum_control_layout`.
    psum_control, mask : ``In(psum_control_layout)``, ``In(wpus)``
        To :class:`gradloom.rtl.ccore.psum.PsumStore`.
    plane_sum_control, plane_sum_read : ``In(ArrayLayout(plane_sum_control_layout, wpus))``,
    ``In(ArrayLayout(plane_sum_read_layout, wpus))``
        To :class:`gradloom.rtl.ccore.plane_l1_sums.PlaneSumStore`.
    asked : ``In(ArrayLayout(2, 2))``
        Of each half, the WPU that the A-Core's read a cycle ago was for; 3: none.
    psums : ``Out(ArrayLayout(signed(psum_width), 2))``
        The A-Core's two lanes, in the cycle after ``asked``.
    plane_sum : ``Out(48)``
        First-pass sum over all WPUs, two cycles after the read's address.
    overflow : ``Out(wpus)``
        A partial sum that was written overflowed.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        wpus, width = config.wpus, signed(config.psum_width)
        factors = data.ArrayLayout(factor_shape(config), PE_TAPS)
        super().__init__({
            "load": In(PE_ROWS), "w": In(data.ArrayLayout(CODE_BITS, PE_TAPS * config.cols)), "swap": In(1),
            "active": Out(data.ArrayLayout(factors, PE_ROWS * config.cols)),
            "sums": In(data.ArrayLayout(data.ArrayLayout(width, WPU_OUTPUTS), wpus)),
            "psum_control": In(psum_control_layout(config)), "mask": In(wpus),
            "plane_sum_control": In(data.ArrayLayout(plane_sum_control_layout(config), wpus)),
            "plane_sum_read": In(data.ArrayLayout(plane_sum_read_layout(config), wpus)),
            "asked": In(data.ArrayLayout(2, HALVES)), "psums": Out(data.ArrayLayout(width, LANES)), "plane_sum": Out(SUM_BITS),
            "overflow": Out(wpus)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        of_family = () if config.family == "any" else (config.family,)  # names of modules stay what they are
        held = shared_module.add(m, "weights", "gradloom_weights", WeightRegisters(config), (config.cols, config.mac, *of_family))
        m.d.comb += [held.load.eq(self.load), held.w.eq(self.w), held.swap.eq(self.swap), self.active.eq(held.active)]
        stores = []
        plane_sums = []
        for w in range(config.wpus):
            store = shared_module.add(m, f"psum_{w}", "gradloom_psum", PsumStore(config),
                                      (config.psum_width, config.psum_depth, *of_family))
            m.d.comb += [
                store.control.eq(self.psum_control), store.enable.eq(self.mask[w]), store.sums.eq(self.sums[w])]
            sums = shared_module.add(m, f"sums_{w}", "gradloom_sums", PlaneSumStore(config),
                                     (config.psum_width, config.max_planes, *of_family))
            m.d.comb += [sums.control.eq(self.plane_sum_control[w]), sums.total.eq(store.total),
                         sums.read.eq(self.plane_sum_read[w]), self.overflow[w].eq(store.ovf)]
            plane_sums.append(sums.q)
            stores.append(store)
        plane_sum = Signal(SUM_BITS, reset_less=True)
        m.d.sync += plane_sum.eq(sum(plane_sums[1:], plane_sums[0]))
        m.d.comb += self.plane_sum.eq(plane_sum)
        for lane in range(LANES):
            self._read(m, lane, stores)
        return m

    def _read(self, m: Module, lane: int, stores: list[PsumStore]) -> None:
        """What the A-Core's read of a lane gives: of the WPU that was asked for, in its half; 0 of the other half."""
        config, asked = self.config, self.asked
        of_half = [Signal(config.psum_width, name=f"half{h}_{lane}") for h in range(HALVES)]
        for h in range(HALVES):
            if config.family == "ecp5" and len(stores) == 1:
                m.d.comb += of_half[h].eq(stores[0].q[lane][h])  # 0 from the half that was not asked
                continue
            with m.Switch(asked[h]):
                for w, store in enumerate(stores):
                    with m.Case(w):
                        m.d.comb += of_half[h].eq(store.q[lane][h])
        read = Signal(signed(config.psum_width), name=f"read{lane}", reset_less=True)
        m.d.sync += read.eq(of_half[0] | of_half[1])
        m.d.comb += self.psums[lane].eq(read)
