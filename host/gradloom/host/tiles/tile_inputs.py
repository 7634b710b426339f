"""Inputs of a convolution's tiles: which stay on chip for all output groups, in what order the others come, and their loads."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import TypeVar

from gradloom.contracts.config import PE_ROWS
from gradloom.contracts.isa import Dest
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.dram.layout import equal_ranges
from gradloom.host.dram.memory_map import Region
from gradloom.host.order.accesses import Access, tensor_access
from gradloom.host.order.tasks import Number, Way
from gradloom.host.tiles.conv_mapping import ConvMapping
from gradloom.host.tiles.row_ranges import Rows
from gradloom.host.tiles.shared_rows import SharedRows
from gradloom.host.tiles.tile_weights import TileWeights

__all__ = ["InputLayout", "TileInputs"]

Range = tuple[int, int]
_Place = TypeVar("_Place", int, Number)

_LOAD_BEATS = 256
"""Beats of a load of inputs, at least, where it can be divided."""


@dataclasses.dataclass(frozen=True)
class InputLayout:
    """How the inputs of some steps lie on chip (docs/decisions/0010-tiles-share-inputs.md).

    Parameters
    ----------
    step_pitch : addresses from step to step
    entries : of a row, those of other steps beside it included
    room : addresses of all of them, if every row has entries of each; 0: each step has a place of its own
    """

    step_pitch: int
    entries: int
    room: int

    def read(self, every: _Place, first: _Place, size: int) -> tuple[_Place, int]:
        """First address, and how many, of what a command reads: ``size`` of them from ``first`` on; of rows that have entries of
        every step those of all, from ``every`` on."""
        return (every, self.room) if self.room else (first, size)


class TileInputs:
    """Input groups of one layer for one phase.

    Parameters
    ----------
    region : :class:`~gradloom.host.dram.memory_map.Region`
        What is swept over: the layer's input, or its error dx.
    share : :class:`int`
        Tiles whose inputs fit side by side, if the layer allows: 2, or 4 if two works run side by side.

    Attributes
    ----------
    half : :class:`int`
        Addresses that a tile may take so that the next one's inputs fit beside it.
    whole, turns : :class:`int`
        Addresses that it may take at all, and for inputs that come chunk by chunk.
    """

    def __init__(self, builder: ProgramBuilder, layer: str, sweep: ConvMapping, region: Region, weights: TileWeights,
                 share: int) -> None:
        self.builder, self.layer, self.sweep, self.tensor, self.weights = builder, layer, sweep, region, weights
        depth = builder.config.ibuf_depth
        self.half, self.whole = (depth // 2, depth) if share == 2 else (depth * 3 // 8, depth * 3 // 4)
        if sweep.addresses(builder.config, 1) > self.whole:
            self.half, self.whole = depth // 2, depth
        self.turns = min(self.whole, depth * 3 // 4)

    def of(self, sweep: ConvMapping, whole: int | None = None) -> "TileInputs":
        """The same for a strip of rows, in at most ``whole`` addresses."""
        found = copy.copy(self)
        found.sweep = sweep
        if whole is not None:
            found.whole = found.turns = whole
        return found

    def size(self, images: int) -> int:
        """Addresses of a step."""
        return self.sweep.addresses(self.builder.config, images)

    def region(self, images: int, ends: int) -> int:
        """Addresses for inputs that come chunk by chunk, the last chunk with ``ends`` steps: three quarters of the buffer, as
        another work has room in the rest, if these hold a step beside it, else the whole."""
        return self.turns if (ends + 1) * self.size(images) <= self.turns else self.whole

    def resident(self, images: int) -> bool:
        """Whether all input groups of a tile fit at once."""
        return self.weights.steps * self.size(images) <= self.whole

    def beats(self, images: int) -> int:
        """Of all steps that are loaded."""
        shared = self.sweep.shared(self.builder.config, images)
        copies = len(shared.reads) * self.builder.config.wpus * shared.entries if shared else 0
        return self.sweep.groups_in * (images * self.sweep.rows * self.sweep.xe + copies)

    def chunks(self, images: int, ends: int = 0, *, begins: bool = False) -> list[Range]:
        """Steps whose inputs, unless they stay on chip, and weights are loaded together, in order.

        Parameters
        ----------
        ends : :class:`int`
            Inputs come chunk by chunk; the first and the last one have at least so many steps, if another one has room beside.
        begins : :class:`bool`
            The first one may have fewer.

        Raises
        ------
        :exc:`~gradloom.host.compilation.fit.ScheduleError`
            If not even one step's weights fit.
        """
        config, steps = self.builder.config, self.weights.steps
        if self.weights.per_step + 1 > config.wbuf_depth:
            raise ScheduleError(
                f"layer {self.layer!r}: one weight tile takes {self.weights.per_step + 1} blocks of each bank, "
                f"configuration {config.name!r} has {config.wbuf_depth} (wbuf_depth): "
                f"raise wbuf_depth or shrink the kernel"
            )
        limit = max(1, (config.wbuf_depth // 2 - 1) // self.weights.per_step)
        if not ends:
            return equal_ranges(0, steps, limit)
        slots = self.region(images, ends) // self.size(images)
        usual = min(limit, max(1, slots // 2))
        ends = min(ends, limit, max(1, slots - 1), max(1, steps // 2))
        if ends <= usual:
            return equal_ranges(0, steps, usual)
        middle = min(usual, max(1, slots - ends))
        first = [] if begins else [(0, ends)]
        return [*first, *equal_ranges(0 if begins else ends, steps - ends, middle), (steps - ends, steps)]

    def layout(self, size: int, steps: int) -> InputLayout:
        """How the inputs of some steps of ``size`` addresses lie that come together: planes of one beat (kernel 1) side by side, so
        that a load brings those of an image in one run."""
        single = self.sweep.k1 and self.tensor.unit == self.builder.config.beat_bytes
        return InputLayout(1, steps, steps * size) if single else InputLayout(size, self.sweep.xe, 0)

    def load(self, images: Range, chunk: Range, addr: Number, windows: int, *, together: bool = False) -> None:
        """Rows of the input groups of a chunk of steps to the addresses from ``addr`` on, for so many windows of the array.

        Where they take longer than the windows other channels bring parts. ``together``: they lie as
        :meth:`layout` says.
        """
        count = images[1] - images[0]
        shared = self.sweep.shared(self.builder.config, count)
        self.load_rows(self._blocks(images), self.size(count), chunk, addr, windows, shared, images[0], together=together)

    def reads(self, images: Range, chunk: Range) -> list[Access]:
        """Parts of the tensor that a chunk of steps needs."""
        chunks = [self.weights.row_groups(row, chunk) for row in range(PE_ROWS)] if self.sweep.dealt else [chunk]
        rows = self._tensor_rows((0, self.sweep.rows))
        return [tensor_access(self.tensor.space, self.tensor.part((images, some, rows)))
                for some in chunks if some[0] < some[1]]

    def strips(self, images: Range) -> list[Range]:
        """Units of an image that can be computed when the first of its :meth:`_blocks` are there, then with the next ones."""
        blocks = self._blocks(images)
        return self.sweep.strips(self.builder.config, [block.rows[1] for block in blocks]) if len(blocks) > 1 else []

    def addresses_of(self, units: Range) -> Range:
        """Addresses of a step, from its first one on, that some units of its one image read."""
        low, high = self.sweep.read(*units)
        banks, xe = self.sweep.banks(self.builder.config), self.sweep.xe
        # Copies of shared rows lie behind the others.
        return low // banks * xe, self.size(1) if units[1] == self.sweep.upi else -(-high // banks) * xe

    def _blocks(self, images: Range) -> list[Rows]:
        """All rows of some images, or, of an image that is made in rows, those that lie at the same addresses together."""
        rows, banks = self.sweep.rows, self.sweep.banks(self.builder.config)
        cut = Plane(rows, 2 * self.sweep.xe).rows_of(self.builder.knobs.subtile_beats)
        size = cut // banks * banks or banks
        if not cut or size >= rows or images[1] - images[0] > 1 or self.sweep.dealt:
            return [Rows(images, (0, rows), 0)]
        return [Rows(images, (low, min(low + size, rows)), low) for low in range(0, rows, size)]

    def load_rows(
        self,
        rows: Sequence[Rows],
        step: int,
        chunk: Range,
        addr: Number,
        windows: int,
        copied: SharedRows | None = None,
        image: int = 0,
        *,
        together: bool = False,
    ) -> None:
        """The same for some rows that lie one behind the other on chip, those of an input group at ``step`` addresses.

        ``copied``: those that the WPUs share, of a tile whose first image is ``image``.
        """
        layout = self.layout(step, chunk[1] - chunk[0])
        if together and layout.room:
            # The rows are those of whole planes.
            self._load_side_by_side((rows[0].images[0], rows[-1].images[1]), chunk, addr, layout)
            return
        builder, sweep, region = self.builder, self.sweep, self.tensor
        beats = sum(part.count for part in rows) * sweep.xe
        shared = beats * (chunk[1] - chunk[0]) * (PE_ROWS if sweep.dealt else 1) > windows
        # The groups of the layer before are finished one after the other, so some can be loaded before the last ones are there.
        size = max(1, _LOAD_BEATS // beats)
        places = [(0, low, min(low + size, chunk[1]), addr + (low - chunk[0]) * step) for low in range(*chunk, size)]
        row_bytes = sweep.xe * builder.config.beat_bytes
        if sweep.dealt:
            every = [self.weights.row_groups(row, chunk) for row in range(PE_ROWS)]
            # Three rows are too few to keep four channels evenly busy.
            limit = max(1, 2 * _LOAD_BEATS // beats) if shared else chunk[1] - chunk[0]
            places = [
                (row, low, high, addr + (low - first) * step)
                for row, (first, last) in enumerate(every)
                for low, high in equal_ranges(first, last, limit)
            ]
        for bank, first, last, start in places:
            # Through one channel: rows of several images lie between each other, and nothing but a barrier orders two Loaders.
            way = builder.channel(Dest.IBUF, shared=shared)
            for part in self._runs(rows):
                # Rows of one image behind those of the one before, from bank to bank.
                turns, banks = divmod(part.skipped, sweep.banks(builder.config))
                builder.load(
                    Dest.IBUF,
                    region,
                    [(part.images, (first, last), self._tensor_rows(part.rows))],
                    region.at(part.images[0], first) + (sweep.row0 + part.rows[0] * sweep.every) * row_bytes,
                    (bank, bank + 1) if sweep.dealt else (0, PE_ROWS),
                    **self._loops(part),
                    n2=last - first,
                    stride2=region.unit,
                    addr=start + turns * sweep.xe,
                    length=(last - first) * step - turns * sweep.xe,
                    way=way,
                    bank0=bank + banks * (PE_ROWS if sweep.dealt else 1),
                    bstep=PE_ROWS if sweep.dealt else 1,
                    xe=sweep.xe,
                    xb=sweep.xe,
                    ostep=step,
                )
            if copied:
                self._load_copies(copied, image + copied.image, (first, last), start, step, way)

    def _load_copies(self, shared: SharedRows, image: int, groups: Range, addr: Number, step: int, way: int | Way) -> None:
        """Copies of the columns that the WPUs need of the rows that they share, of some input groups."""
        builder, sweep, region = self.builder, self.sweep, self.tensor
        beat, config = builder.config.beat_bytes, builder.config
        for unit, r in shared.reads:
            turn, bank = divmod(shared.bank + r, config.row_banks)
            place = shared.addr + (unit + turn) * shared.entries
            row = sweep.row0 + shared.row + unit * sweep.ystep + r
            builder.load(
                Dest.IBUF,
                region,
                # The first copy begins with the last beat of the row before, which the array does not read.
                [((image, image + 1), groups, (row - 1, row + 1))],
                region.at(image, groups[0]) + (row * sweep.xe - 1) * beat,
                n0=shared.entries,
                n1=config.wpus,
                stride1=shared.stride * beat,
                n2=groups[1] - groups[0],
                stride2=region.unit,
                addr=addr + place,
                length=(groups[1] - groups[0]) * step - place,
                way=way,
                bank0=bank,
                bstep=PE_ROWS,
                xe=shared.entries,
                xb=shared.entries,
                ostep=step,
            )

    def _tensor_rows(self, rows: Range) -> Range:
        """Of the tensor that some stored rows are."""
        sweep = self.sweep
        return sweep.row0 + rows[0] * sweep.every, sweep.row0 + (rows[1] - 1) * sweep.every + 1

    def _load_side_by_side(self, images: Range, chunk: Range, addr: Number, layout: InputLayout) -> None:
        """Planes of one beat, those of all input groups of an image and PE row in one run."""
        builder = self.builder
        for row in range(PE_ROWS):
            first, last = self.weights.row_groups(row, chunk)
            if first == last:
                continue
            builder.load(
                Dest.IBUF,
                self.tensor,
                [(images, (first, last))],
                self.tensor.at(images[0], first),
                (row, row + 1),
                n0=last - first,
                n1=images[1] - images[0],
                stride1=self.tensor.outer_bytes,
                addr=addr,
                length=layout.room,
                way=builder.channel(Dest.IBUF, shared=True),
                bank0=row,
                bstep=PE_ROWS,
                xe=layout.entries,
                xb=last - first,
            )

    def _runs(self, rows: Sequence[Rows]) -> Sequence[Rows]:
        """Rows that one load brings: one run of each image, or, where others lie between them, rows of one image."""
        if self.sweep.every == 1:
            return rows
        return [image for part in rows for image in part.one_by_one()]

    def _loops(self, part: Rows) -> dict[str, int]:
        """The first two loops of a load."""
        sweep, row = self.sweep, self.sweep.xe * self.builder.config.beat_bytes
        (first, last), (low, high) = part.images, part.rows
        if sweep.every == 1:
            return {"n0": (high - low) * sweep.xe, "n1": last - first, "stride1": self.tensor.outer_bytes}
        return {"n0": sweep.xe, "n1": high - low, "stride1": sweep.every * row}
