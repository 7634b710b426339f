"""Forward pass: convolution, normalisation and activation by tiles; pools; logits and loss gradient."""

import dataclasses
import itertools
from collections.abc import Callable

from gradloom.contracts.isa import Dest, Kind
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.compilation.stream_fit import holds, planes_at_once
from gradloom.host.compilation.sums import HALVES, TileSums
from gradloom.host.compilation.transfers import PARAMETER_ENTRIES
from gradloom.host.dram.layout import ceil_div, equal_ranges
from gradloom.host.forward import schedule_logits, schedule_shortcut
from gradloom.host.forward.forward_rows import RowForward
from gradloom.host.forward.forward_sweeps import activate, load_sides
from gradloom.host.forward.forward_tiles import after_layer_before, forward_work
from gradloom.host.order.pieces import BoundEngine, Gate, Piece, Work
from gradloom.host.order.tasks import Address
from gradloom.host.tiles.convolution import Convolution
from gradloom.host.tiles.pool_pass import forward_pass, pool_work
from gradloom.host.tiles.row_parts import swept_rows
from gradloom.models.network import INPUT, Conv, FullyConnected, Layer, Pool, Subsample

__all__ = ["forward", "forward_zero"]

Range = tuple[int, int]
_POOL_PARTS = 8
"""Works of a pool behind sets of tiles, of some channel groups each."""


@dataclasses.dataclass
class Sides:
    """What the A-Core needs of a tile beside its sums: addresses of the first output group's parameters and the residual's planes;
    ``loaded`` says whether they have been loaded when the array's last command comes."""

    parameters: Address | None = None
    residual: Address | int = 0
    loaded: Callable[[], bool] = lambda: True


def forward_zero(builder: ProgramBuilder, layer: Layer) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Exponent of z at which the converter's shift is 0: constant, tensors added, tensors subtracted."""
    if isinstance(layer, Pool):
        return forward_pass(builder.network, layer).zero(builder)
    if getattr(layer, "norm", None) == "frn":
        return -20, (), ()
    return 0, (builder.tid(layer.name, Kind.W), builder.tid(layer.input, Kind.Z)), ()


def forward(builder: ProgramBuilder, layer: Layer, *, dry: bool = False) -> list[Work]:
    """All commands of one layer's forward pass; ``dry`` only gathers the statistics of z."""
    tag = 8 * builder.network.index(layer.name)
    if isinstance(layer, FullyConnected) and layer.name == builder.network.logits.name:
        works = schedule_logits.forward(builder, layer, dry=dry)
    elif isinstance(layer, Conv | FullyConnected):
        works = _conv(builder, layer, dry)
    elif isinstance(layer, Subsample):
        works = [schedule_shortcut.forward(builder, layer)]
    else:
        assert isinstance(layer, Pool)
        groups = builder.groups(builder.network.shape(layer.input)[0])
        # The last tiles of sets come at their end: their groups are not to keep those before waiting.
        parts = _POOL_PARTS if (layer.input, False) in builder.by_sets else 1
        one = forward_pass(builder.network, layer)
        chunks = equal_ranges(0, groups, ceil_div(groups, parts))
        works = [pool_work(builder, one, dry=dry, chosen=range(*chunk)) for chunk in chunks]
    return [builder.planned(tag, work) for work in works]


def _beside_sets(builder: ProgramBuilder, layer: Conv | FullyConnected, work: Convolution) -> bool:
    """Whether a first layer's tiles may come between those of sets of the next one: tiles of one command, which adds to no sums."""
    followers = [other for other, _ in builder.network.consumers(layer.name)]
    if layer.input != INPUT or not (work.steps == len(work.sweep.windows) == 1) or len(followers) != 1:
        return False
    follower = followers[0]
    if not isinstance(follower, Conv) or not work.fits:
        return False
    after, plane = forward_work(builder, follower)
    return after.fits and holds(builder, plane) and any(not after.inputs.resident(high - low) for low, high in after.image_tiles())


def _conv(builder: ProgramBuilder, layer: Conv | FullyConnected, dry: bool) -> list[Work]:
    name = layer.name
    work, plane = forward_work(builder, layer)
    if _beside_sets(builder, layer, work):
        builder.beside_sets = name

    def gate(images: Range) -> Gate:
        return Gate(tuple(builder.region(source, "z", images) for source in (layer.input, layer.residual) if source))

    if not (work.fits and holds(builder, plane)):
        works = [work]
        if work.shape.stackable:
            works.append(forward_work(builder, layer, stacked=True)[0])
        return RowForward(builder, layer, works, plane, dry).works(gate)
    cut = swept_rows(builder, work, plane, bits=layer.act in ("tlu", "relu"))
    limit = planes_at_once(builder, name, plane) if cut == [None] else 1

    def emit(images: Range, tile: list[int], inputs: Address | None) -> Work:
        parts = list(itertools.product(equal_ranges(*images, limit), cut))
        (some, rows), frn = parts[0], layer.norm == "frn"
        # What the A-Core needs first is loaded before the array's own operands can hold it up, if two tiles' planes have room.
        early = HALVES * (some[1] - some[0]) * plane.of(rows).nb <= builder.ring["AA"].size
        sides = Sides()

        def load() -> None:
            sides.parameters = builder.load_parameters(name, tile[0])
            if builder.fine_grained and layer.residual:
                builder.fetch_planes(Dest.AA, builder.memory[layer.residual, "z"], some, tile[0], cut)
            if early:
                sides.residual = load_sides(builder, layer, some, tile[0], sides.parameters, rows)[1]

        def prepare() -> None:
            if builder.fine_grained:
                sides.loaded = builder.if_room("PARAMETERS", PARAMETER_ENTRIES, load)
            else:
                load()

        sums = yield from work.compute(images, tile, inputs, norms=frn, prepare=prepare)
        builder.sweep(
            sums,
            lambda: _sweeps(images, tile, sums, sides, early=early),
            lambda: _sweeps(images, tile, sums, Sides(), early=False),
            sides.loaded,
        )

    def _sweeps(images: Range, tile: list[int], sums: TileSums, sides: Sides, *, early: bool) -> Work:
        parts, frn = list(itertools.product(equal_ranges(*images, limit), cut)), layer.norm == "frn"
        parameters, residual, lam = sides.parameters, sides.residual, None
        for tap, m in enumerate(tile):
            for number, (part, rows) in enumerate(parts):
                swept, fresh = plane.of(rows), not rows or rows[0] == 0
                if tap and not number:
                    parameters = None
                room = ((builder.pools["PARAMETERS"], PARAMETER_ENTRIES),) if parameters is None else ()
                yield Piece(BoundEngine.ACORE, (part[1] - part[0]) * swept.nb, room=room, loads=False)
                if tap or number or not early or parameters is None:
                    parameters, residual = load_sides(builder, layer, part, m, parameters, rows)
                fields = {
                    "planes": part[1] - part[0],
                    # A dry run leaves lambda for the rows that follow, too; nothing of it reaches the memory.
                    "dry": int(dry and not (rows and fresh)),
                    **swept.fields(),
                    **work.psum_fields(sums, tap, images, part, rows),
                    "n": plane.fields()["n"],
                }
                if frn and rows and fresh:
                    lam = builder.ring["PBUF"].take(1)
                shared = (lam, fresh) if lam is not None and rows else None
                activate(builder, layer, part, m, fields, sums, (parameters, residual), swept, dry, rows, shared)
            assert parameters is not None
            builder.pool["PARAMETERS"].give_back(parameters)

    as_made = builder.knobs.subtile_beats > 0 and layer.input != INPUT
    early = after_layer_before(builder, layer, convolved=as_made)
    return work.works(work.image_tiles(), gate, emit, early=early, as_made=as_made)
