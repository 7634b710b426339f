"""Forward pass of a layer whose planes stay in the partial sums (:mod:`gradloom.host.tiles.resident_planes`)."""

import dataclasses
import itertools
from collections.abc import Callable

from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.compilation.sums import HALVES, FixedSums
from gradloom.host.compilation.transfers import PARAMETER_ENTRIES
from gradloom.host.order.allocators import FreeListAllocator
from gradloom.host.order.pieces import OPEN, BoundEngine, Gate, Piece, Work
from gradloom.host.order.tasks import Address
from gradloom.host.tiles.resident_planes import REST, KeptTile, ResidentPlane, Stage

__all__ = ["KeptForward", "KeptGroup"]

Range = tuple[int, int]


@dataclasses.dataclass(eq=False)
class KeptGroup:
    """Output groups of an image that are computed together.

    Parameters
    ----------
    pieces : of the plane, by number
    place : whose entries these are: of the groups in turns
    lam : entry of the first one's lambda
    parameters : entries of their parameters, if they stay on chip
    begun : whether magnitudes have been gathered
    """

    image: int
    outs: list[int]
    pieces: dict[int, KeptTile]
    place: int
    lam: Address | None = None
    parameters: list[Address] = dataclasses.field(default_factory=list)
    begun: bool = False


class KeptForward:
    """Output groups one after the other, each while the A-Core sweeps the one before (:meth:`work`).

    Parameters
    ----------
    sweep : emits the sweeps of a piece; last argument: whether they find lambda
    """

    def __init__(
        self, builder: ProgramBuilder, layer: str, kept: ResidentPlane, sweep: Callable[[KeptGroup, KeptTile, bool], None]
    ) -> None:
        self.builder, self.layer, self.kept, self._sweep = builder, layer, kept, sweep
        self._most = max(len(outs) for outs in kept.outputs)
        entries = HALVES * self._most * (PARAMETER_ENTRIES + 1)
        # Parameters come once, ahead of all other loads of their group, if there is room for those of two groups.
        self._stay = entries <= builder.pool["PARAMETERS"].size
        self._count = entries if self._stay else HALVES * self._most
        self._entries: Address | None = None
        self._last = max(n for n, stage in enumerate(kept.stages) if stage.sweeps)
        """The stage in which the last piece of the group before is swept."""

    @property
    def _room(self) -> tuple[FreeListAllocator, int]:
        return self.builder.pools["PARAMETERS"], self._count

    def work(self, gate: Callable[[Range], Gate]) -> Work:
        """All commands; ``gate``: of some images."""
        before: KeptGroup | None = None
        for number, (image, outs) in enumerate(itertools.product(range(*self.builder.images), self.kept.outputs)):
            group = self._group(number, image, outs)
            for stage in self.kept.stages:
                if before or stage.computes:
                    yield from self._stage(stage, group, before, gate)
            before = group
        for stage in self.kept.stages[: self._last + 1]:
            yield from self._stage(stage, None, before, gate)
        assert self._entries is not None
        self.builder.pool["PARAMETERS"].give_back(self._entries)
        self.kept.close()

    def _group(self, number: int, image: int, outs: list[int]) -> KeptGroup:
        """The next one; its entries are those of every other one. They are taken with the first piece."""
        place = number % HALVES * self._most
        return KeptGroup(image, outs, self.kept.pieces(up=number % 2 == 0), place)

    def _stage(
        self,
        stage: Stage,
        group: KeptGroup | None,
        before: KeptGroup | None,
        gate: Callable[[Range], Gate],
    ) -> Work:
        kept, number = self.kept, self.kept.stages.index(stage)
        begins = group is not None and bool(stage.computes) and not group.begun
        opens, turns = begins and before is None, group is not None and number == len(kept.stages) - 1
        piece = self._piece(stage, group, before)
        yield piece._replace(
            gate=gate((group.image, group.image + 1)) if group and begins else OPEN,
            room=(kept.room, self._room) if opens else (),
            inside=not opens,
            silent=piece.silent and not turns,
        )
        if opens:
            kept.open()
            self._entries = self.builder.pool["PARAMETERS"].take(self._count)
        if group and begins:
            self._take_entries(group)
        if before and stage.again:
            rest = before.pieces[REST]
            kept.compute(before.image, before.outs, rest.tile, sums=rest.sums)
        if group:
            self._compute(stage, group)
        if before:
            for n in stage.sweeps:
                self._sweep(before, before.pieces[n], False)
        if group and turns:
            self._sweep(group, group.pieces[0], True)

    def _take_entries(self, group: KeptGroup) -> None:
        """Give a group its entries, and load its parameters if they stay on chip."""
        load = self.builder.load_parameters
        assert self._entries is not None
        group.lam = self._entries + group.place
        if self._stay:
            first = self._entries + (HALVES * self._most + group.place * PARAMETER_ENTRIES)
            group.parameters = [load(self.layer, m, place=first + n * PARAMETER_ENTRIES) for n, m in enumerate(group.outs)]

    def _compute(self, stage: Stage, group: KeptGroup) -> None:
        for number in stage.computes:
            sums = group.pieces[self._place(number)].sums
            self.kept.compute(group.image, group.outs, group.pieces[number].tile, norms=True, further=group.begun, sums=sums)
            group.begun = True

    @staticmethod
    def _place(number: int) -> int:
        """The piece in whose place a piece is computed for its magnitudes."""
        return 1 if number == REST else number

    def _piece(self, stage: Stage, group: KeptGroup | None, before: KeptGroup | None) -> Piece:
        """The array's work of a stage; the A-Core may lag behind by what its sweeps leave of that time."""
        kept, tiles, places = self.kept, [], []
        if stage.again and before:
            tiles.append(before.pieces[REST].tile)
            places.append(before.pieces[REST].sums)
        if group:
            tiles += [group.pieces[number].tile for number in stage.computes]
            places += [group.pieces[self._place(number)].sums for number in stage.computes]
        cycles = sum(kept.tile_cycles(tile) for tile in tiles)
        swept = sum(kept.swept_cycles(before.pieces[n].tile, before.outs) for n in stage.sweeps) if before else 0
        piece = Piece(BoundEngine.ARRAY, cycles, lag=max(0, cycles - swept), silent=not swept)
        return piece._replace(results=FixedSums(places[0])) if places else piece
