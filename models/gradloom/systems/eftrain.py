"""EF-Train (Tang et al., ACM TODAES 2022): cycles, banks and tiles of a channel-parallel FP32 accelerator.

Equations and tables are those of the paper, sections 5 and 6. As printed, they do not give the cycles of its table 6. They do, in
all 14 rows to the cycle, with three corrections:

1. Equations 18 and 19 begin a tile with t_IFM where they say t_LOAD: the first weights come under the tile before.
2. Equations 21, 24 and 27 add up the chunks of M_on output channels, of which the last one is smaller. Printed are
   ceil(M / M_on) chunks of full size.
3. Input features of a layer with fewer than Tn channels take min(N, Tn) words a position, not Tn (t_IFM, section 5.1). Weights
   keep their full tile.

Without the second alone the total of table 6 is 14.7 % too high, without all three 25.7 %.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from gradloom.systems.vocabulary import ConvShape, Prediction, Resources, ceil_div, chunks, round_up, step_macs

__all__ = ["DMA_START", "MACHINES", "PHASES", "Machine", "NoFit", "Tiles", "bram_limit", "conv_banks", "conv_dsps",
           "dsp_limit", "layer_cycles", "published_m_on", "scheduled_tiles", "step"]

PHASES = ("FP", "BP", "WU")
DMA_START = 400
"""Cycles until a DMA stream starts, at 100 MHz (section 5.1)."""
_SHARE_OF_DSPS, _SHARE_OF_BRAMS = 0.82, 0.75
"""Of a device, for the convolution. Section 5.3 names 80 % of the DSP slices; the Pynq-Z1's published 180 of 220 are 81.8 %."""
_DSPS_PER_MAC = 5
"""q of equation 28: DSP slices of an FP32 multiply-accumulate (section 6.3)."""
_ALEXNET_TAPS = 11 * 11


class NoFit(ValueError):
    """No tiles fit the device; the message names what ends them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A generated accelerator.

    Parameters
    ----------
    tile : :class:`int`
        Tm = Tn: channels of a tile of output and of input features.
    words : :class:`int`
        p: 32-bit words that a DMA stream moves in a cycle.
    bank_words : :class:`int`
        32-bit words of a block RAM bank: 1024 (a BRAM36), or 512 (half of one).
    clock_hz : :class:`float`
    start : :class:`int`
        t_start, cycles.
    correct : :class:`bool`
        With the corrections of this module's docstring, or as printed.
    """

    tile: int = 16
    words: int = 4
    bank_words: int = 1024
    clock_hz: float = 100e6
    start: int = DMA_START
    correct: bool = True


MACHINES = {"zcu102": Machine(), "zcu102-1x": Machine(bank_words=512), "pynq-z1": Machine(tile=6, words=1)}
"""Those of the paper: AlexNet and VGG16, the "1X" CNN on either board (sections 6.1 and 6.3; tables 7 and 8). That the 1X CNN of
the ZCU102 has banks of 512 words follows from its published B_Conv of 288."""


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Tr rows of a tile of output features, and M_on output channels whose weights are on chip. Tc is C (section 4.2)."""

    rows: int
    outputs: int


@dataclasses.dataclass(frozen=True)
class _Cycles:
    """Section 5.1's times of one tile."""

    comp: int
    ifm: int
    ofm: int
    wei: int
    out: int


def _tile_cycles(shape: ConvShape, tiles: Tiles, machine: Machine) -> _Cycles:
    window = ((tiles.rows - 1) * shape.stride + shape.kernel) * ((shape.columns - 1) * shape.stride + shape.kernel)
    channels = min(shape.inputs, machine.tile) if machine.correct else machine.tile
    area = tiles.rows * shape.columns
    return _Cycles(
        comp=area * shape.taps,
        ifm=machine.start + ceil_div(channels, machine.words) * window,
        ofm=machine.start + area * ceil_div(machine.tile, machine.words),
        wei=ceil_div(machine.tile * machine.tile, machine.words) * shape.taps,
        out=ceil_div(machine.tile, machine.words) * area,
    )


def layer_cycles(shape: ConvShape, tiles: Tiles, phase: str, batch: int, machine: Machine) -> int:
    """Cycles of one phase of one layer for a batch (equations 15 to 27).

    BP is a convolution of errors with M and N exchanged: of ``shape`` it takes inputs for outputs and the other way round, and its
    tiles are counted in the output channels of that convolution.

    Raises
    ------
    :exc:`ValueError`
        If there is no such phase.
    """
    if phase not in PHASES:
        raise ValueError(f"phase must be one of {', '.join(PHASES)}, not {phase!r}")
    shape = _turned(shape, phase)
    cycles = _tile_cycles(shape, tiles, machine)
    sizes = chunks(shape.outputs, tiles.outputs) if machine.correct else [tiles.outputs] * ceil_div(shape.outputs, tiles.outputs)
    of_chunk = _update_chunk if phase == "WU" else _propagation_chunk(phase)
    return sum(of_chunk(shape, cycles, tiles, size, batch, machine) for size in sizes)


def _propagation_chunk(phase: str) -> Callable[[ConvShape, _Cycles, Tiles, int, int, Machine], int]:
    """FP (equations 15 to 21) or BP (the paragraph below equation 21)."""

    def of_chunk(shape: ConvShape, t: _Cycles, tiles: Tiles, outputs: int, batch: int, machine: Machine) -> int:
        columns, rows = ceil_div(outputs, machine.tile), ceil_div(shape.rows, tiles.rows)
        inner = ceil_div(shape.inputs, machine.tile) - 1
        weights = t.wei
        if phase == "BP":
            # The addresses of weights are contiguous for a chunk only, which is loaded at once.
            weights = ceil_div(outputs * machine.tile, machine.words) * shape.taps + machine.start
        load, store = max(t.ifm, weights), max(t.comp, t.out)
        prod1, prod2 = max(t.ifm, t.comp), max(load, t.comp)
        lat1 = inner * prod1 + t.ifm + t.comp
        lat2 = inner * prod1 + t.ifm + store
        lat3 = (columns * rows - 1) * lat2 + lat1 + t.out + machine.start
        begin = t.ifm if machine.correct else load
        first1 = inner * prod2 + begin + t.comp
        first2 = inner * prod2 + begin + store
        if phase == "FP":
            first = columns * (rows - 1) * lat2 + (columns - 1) * first2 + first1
        else:
            first = (columns * rows - 1) * lat2 + first1
        return (batch - 1) * lat3 + first + t.out + machine.start

    return of_chunk


def _update_chunk(shape: ConvShape, t: _Cycles, tiles: Tiles, outputs: int, batch: int, machine: Machine) -> int:
    """WU (equations 22 to 27). Updated weights leave as slowly as they come: t_OUT = t_WEI."""
    columns, rows, inputs = ceil_div(outputs, machine.tile), ceil_div(shape.rows, tiles.rows), ceil_div(shape.inputs, machine.tile)
    load = max(t.ifm, t.ofm)
    if shape.rows > tiles.rows:
        prod1, store = max(load, t.comp), max(t.comp, t.wei)
        lat1 = (rows - 1) * prod1 + load + t.comp
        last = (rows - 1) * prod1 + load + store
        return ((batch - 1) * columns * inputs + 1) * lat1 + (columns * inputs - 1) * last + t.wei
    prod2 = max(t.ifm, t.comp)
    lat1 = (inputs - 1) * prod2 + load + t.comp
    last = (inputs - 1) * (prod2 + t.wei) + load + t.comp + t.wei
    return columns * ((batch - 1) * lat1 + last)


def conv_dsps(machine: Machine) -> int:
    """D_Conv (equation 28)."""
    return _DSPS_PER_MAC * machine.tile * machine.tile


def _ifm_banks(shape: ConvShape, rows: int, machine: Machine) -> int:
    window = ((rows - 1) * shape.stride + shape.kernel) * ((shape.columns - 1) * shape.stride + shape.kernel)
    return machine.tile * ceil_div(window, machine.bank_words)


def _ofm_banks(shape: ConvShape, rows: int, machine: Machine) -> int:
    return machine.tile * ceil_div(rows * shape.columns, machine.bank_words)


def _weight_banks(shape: ConvShape, outputs: int, machine: Machine) -> int:
    words = shape.taps * ceil_div(shape.inputs, 2 * machine.tile) * ceil_div(outputs, machine.tile)
    return machine.tile * machine.tile * ceil_div(words, machine.bank_words)


def conv_banks(layers: Sequence[ConvShape], tiles: Sequence[Mapping[str, Tiles]], machine: Machine) -> float:
    """B_Conv in block RAMs of 36 Kbit (equations 29 to 32): of every buffer the largest of any layer and phase, twice."""
    used = [(shape, phase, tile) for shape, own in zip(layers, tiles, strict=True) for phase, tile in own.items()]
    ifm = max(_ifm_banks(_turned(shape, phase), tile.rows, machine) for shape, phase, tile in used)
    ofm = max(_ofm_banks(_turned(shape, phase), tile.rows, machine) for shape, phase, tile in used)
    weights = max(_weight_banks(_turned(shape, phase), tile.outputs, machine) for shape, phase, tile in used)
    return 2 * (ifm + ofm + weights) * machine.bank_words / 1024


def published_m_on(shape: ConvShape, machine: Machine) -> int:
    """M_on of table 6: **fitted** to it, as algorithm 1 gives larger ones.

    7 tiles of weights lie in a bank of 1024 words where a pair of input tiles takes at most 121, the taps of AlexNet's first layer;
    where it takes more of them, the bank holds as many times fewer.
    """
    pairs = ceil_div(shape.inputs, 2 * machine.tile)
    return min(round_up(shape.outputs, machine.tile), max(1, 7 // ceil_div(pairs, _ALEXNET_TAPS // shape.taps)) * machine.tile)


def scheduled_tiles(layers: Sequence[ConvShape], batch: int, machine: Machine, brams: float, *, per_phase: bool = False,
                    ) -> list[dict[str, Tiles]]:
    """Tr and M_on of every layer by phase (algorithm 1), for at most ``brams`` block RAMs of 36 Kbit in the convolution.

    Steps 3 and 4 keep IFM and OFM buffers for one row of the largest plane; steps 5 to 11 shrink M_on until the weights fit beside
    them; steps 13 to 16 take the Tr of fewest cycles. The first layer has no BP. Where the largest kernel is AlexNet's, M_on is
    that of :func:`published_m_on`, and the tiles are those of table 6.

    ``per_phase``: a phase has a Tr of its own, by which the published times of table 7 come out better. In table 6 a layer has one.

    Raises
    ------
    :exc:`NoFit`
        If one tile of weights and one row do not fit.
    """
    limit = int(brams * 1024 / machine.bank_words)
    largest = max(layers, key=lambda shape: shape.rows * shape.columns)
    least = _ifm_banks(largest, 1, machine) + _ofm_banks(largest, 1, machine)
    fitted = max(shape.taps for shape in layers) == _ALEXNET_TAPS
    outputs: list[dict[str, int]] = []
    for place, shape in enumerate(layers):
        turned = {phase: _turned(shape, phase) for phase in (PHASES if place else ("FP", "WU"))}
        most = {phase: _most_outputs(of, least, machine, limit) for phase, of in turned.items()}
        outputs.append({phase: min(most[phase], published_m_on(of, machine)) for phase, of in turned.items()} if fitted else most)
    weights = max(_weight_banks(_turned(shape, phase), m_on, machine)
                  for shape, own in zip(layers, outputs, strict=True) for phase, m_on in own.items())
    found = []
    for shape, own in zip(layers, outputs, strict=True):
        fitting = [rows for rows in range(1, shape.rows + 1)
                   if all(2 * (_ifm_banks(of, rows, machine) + _ofm_banks(of, rows, machine) + weights) <= limit
                          for of in {_turned(shape, phase) for phase in own})]
        if not fitting:
            raise NoFit(f"layer {shape.name!r}: a row of its features and {weights} banks of weights take more than the {limit} "
                        "banks that there are")
        cycles = {phase: {rows: layer_cycles(shape, Tiles(rows, m_on), phase, batch, machine) for rows in fitting}
                  for phase, m_on in own.items()}
        together = min((sum(by_rows[rows] for by_rows in cycles.values()), rows) for rows in fitting)[1]
        found.append({phase: Tiles(min((count, rows) for rows, count in by_rows.items())[1] if per_phase else together, own[phase])
                      for phase, by_rows in cycles.items()})
    return found


def _turned(shape: ConvShape, phase: str) -> ConvShape:
    """The convolution of a phase. That of BP goes from outputs to inputs, over the input's plane (equation 2); the errors of a
    layer of stride 2 have zeros between them."""
    if phase != "BP":
        return shape
    return dataclasses.replace(shape, outputs=shape.inputs, inputs=shape.outputs, rows=shape.in_rows, columns=shape.in_columns,
                               stride=1)


def _most_outputs(shape: ConvShape, least: int, machine: Machine, limit: int) -> int:
    """Steps 6 to 10."""
    parts = 1
    while 2 * (least + _weight_banks(shape, _part(shape, parts, machine), machine)) > limit:
        if _part(shape, parts, machine) == machine.tile:
            raise NoFit(f"layer {shape.name!r}: a tile of weights and a row of the largest plane take "
                        f"{2 * (least + _weight_banks(shape, machine.tile, machine))} banks, and there are {limit}")
        parts += 1
    return _part(shape, parts, machine)


def _part(shape: ConvShape, parts: int, machine: Machine) -> int:
    """Step 8: the least multiple of Tm from M / l on."""
    return round_up(ceil_div(shape.outputs, parts), machine.tile)


def step(layers: Sequence[ConvShape], batch: int, machine: Machine, brams: float, *, per_phase: bool = False) -> Prediction:
    """A training step with the tiles of algorithm 1: layers with weights alone, as equations 15 to 27 model nothing else.

    The first layer has no BP (table 6). ``brams``: block RAMs of 36 Kbit for the convolution.

    Raises
    ------
    :exc:`NoFit`
        If no tiles fit.
    """
    tiles = scheduled_tiles(layers, batch, machine, brams, per_phase=per_phase)
    cycles = sum(layer_cycles(shape, tile, phase, batch, machine)
                 for shape, own in zip(layers, tiles, strict=True) for phase, tile in own.items())
    return Prediction(
        system="eftrain", point=f"{machine.tile} x {machine.tile}", cycles=cycles, clock_hz=machine.clock_hz, batch=batch,
        macs=machine.tile * machine.tile, useful=step_macs(layers, batch),
        resources=Resources(dsps=conv_dsps(machine), brams=conv_banks(layers, tiles, machine)),
        bandwidth=4 * machine.words * 4 * machine.clock_hz,
        notes=("layers with weights alone: the paper has no equations for pools and norms, and computes the loss on the CPU",))


def dsp_limit(dsps: float) -> float:
    """DSP slices that the convolution may take of a device (section 5.3)."""
    return _SHARE_OF_DSPS * dsps


def bram_limit(brams: float) -> float:
    """Block RAMs that the convolution may take of a device (section 5.3)."""
    return _SHARE_OF_BRAMS * brams
