"""Forward pass of the last layer: logits, and the gradient of the loss.

The logit buffer may hold fewer images than the batch has. If the partial sums of all output groups fit, the array computes them for
the whole batch, so that every weight is loaded once, and the A-Core takes some images' logits after the other; else the array takes
only as many images at once as the buffer holds, and all weights come again for the next ones.
"""

from collections.abc import Iterator

from gradloom.contracts.isa import Dest, Kind, Opcode, Source
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.compilation.stream_fit import planes_at_once
from gradloom.host.compilation.sums import HALVES, TileSums
from gradloom.host.compilation.transfers import PARAMETER_ENTRIES
from gradloom.host.dram.layout import ceil_div, equal_ranges
from gradloom.host.forward.forward_tiles import after_layer_before, forward_work
from gradloom.host.order.pieces import BoundEngine, Gate, Piece, Work
from gradloom.host.order.tasks import Address, PlannedAccess, Uses
from gradloom.host.tiles.conv_mapping import psum_words
from gradloom.models.network import INPUT, FullyConnected

__all__ = ["forward"]

Range = tuple[int, int]
Tile = tuple[list[int], TileSums]
"""Output groups that are computed together, and their partial sums."""

_SWEEP_CYCLES = 50
"""Of the A-Core for the logits of an output group, about."""


def forward(builder: ProgramBuilder, layer: FullyConnected, *, dry: bool) -> list[Work]:
    """All commands of the last layer's forward pass, and of the loss; ``dry`` writes no parameter."""
    return _Logits(builder, layer, dry).works()


class _Logits:
    def __init__(self, builder: ProgramBuilder, layer: FullyConnected, dry: bool) -> None:
        self.builder, self.layer, self.dry = builder, layer, dry
        self.work, self.plane = forward_work(builder, layer)
        self.tiles, self.groups = self.work.tiles(), self.work.outputs
        self._logits: Address | None = None
        self._kept = list[Tile]()

    @property
    def _held(self) -> int:
        """Images whose logits the buffer holds, at least one: a configuration's ``logit_depth`` holds its ``max_classes``."""
        return self.builder.ring["LOGIT"].size // self.groups

    def _places(self, images: int) -> int:
        """Addresses of each half that the sums of all output groups take."""
        return ceil_div(len(self.tiles), HALVES) * psum_words(self.work.sweep, self.builder.config, images)

    def _allowed(self, images: int) -> bool:
        """Whether so many images may be computed at once. Between tiles of a batch's part others could come, which take a half."""
        low, high = self.builder.images
        return images <= self._held or (images == high - low and self._places(images) <= self.builder.config.psum_depth)

    def _parts(self, images: Range) -> list[Range]:
        """Images whose logits the buffer holds at once."""
        return equal_ranges(*images, self._held)

    def works(self) -> list[Work]:
        builder = self.builder

        def gate(images: Range) -> Gate:
            return Gate((builder.region(self.layer.input, "z", images),))

        tiles = self.work.image_tiles(self._allowed)
        return self.work.works(tiles, gate, self._emit, early=after_layer_before(builder, self.layer))

    def _emit(self, images: Range, outputs: list[int], inputs: Address | None) -> Iterator[Piece]:
        """A tile: its sums, and the logits of the first images, or of all."""
        builder, count = self.builder, images[1] - images[0]
        parts = self._parts(images)
        if outputs == self.tiles[0]:
            self._begin(parts[0])
        place = None
        if len(parts) > 1:
            words = psum_words(self.work.sweep, builder.config, count)
            place = builder.take_sums(words, len(self._kept) // HALVES * words)
        biases: list[Address] = []
        sums = yield from self.work.compute(
            images, outputs, inputs, sums=place, prepare=lambda: biases.append(self._load_biases(outputs)))
        self._kept.append((outputs, sums))
        self._sweep(images, parts[0], outputs, sums, biases[0])
        if outputs != self.tiles[-1]:
            return
        self._end(parts[0])
        for some in parts[1:]:
            for n, (others, their) in enumerate(self._kept, 1):
                ends = n == len(self._kept)
                yield Piece(BoundEngine.ACORE, len(others) * _SWEEP_CYCLES)
                if n == 1:
                    self._begin(some)
                self._sweep(images, some, others, their, self._load_biases(others))
                if ends:
                    self._end(some)
        if len(parts) > 1:
            # Until the last of them no error is there: what the backward pass computed would take the place of sums that are kept.
            errors = builder.region(self.layer.name, "error" if builder.training else "logits", images)
            builder.call(lambda: None, uses=Uses(writes=(errors,)))
        self._kept.clear()

    def _begin(self, images: Range) -> None:
        self._logits = self.builder.ring["LOGIT"].take((images[1] - images[0]) * self.groups)

    def _load_biases(self, outputs: list[int]) -> Address:
        """Biases of a tile's output groups, one behind the other where beta of a channel group's parameters lies. Returns the first
        of their entries, which are to be given back to the pool."""
        builder, region = self.builder, self.builder.memory[self.layer.name, "parameters"]
        start = builder.pool["PARAMETERS"].take(PARAMETER_ENTRIES)
        builder.load(
            Dest.PBUF,
            region,
            [((group, group + 1), (0, 1)) for group in outputs],
            region.at(outputs[0]),
            n0=region.unit // builder.config.beat_bytes,
            n1=len(outputs),
            stride1=region.at(outputs[-1] - outputs[0]) // max(1, len(outputs) - 1),
            addr=start + 1,
            length=len(outputs),
        )
        return start

    def _sweep(self, images: Range, some: Range, outputs: list[int], sums: TileSums, biases: Address) -> None:
        """Logits of some of a tile's images."""
        builder, name = self.builder, self.layer.name
        assert self._logits is not None
        w, source = builder.tid(name, Kind.W), builder.tid(self.layer.input, Kind.Z)
        for tap, group in enumerate(outputs):
            for part in equal_ranges(*some, planes_at_once(builder, name, self.plane)):
                first, count = self._logits + (part[0] - some[0]) * self.groups, part[1] - part[0]
                fields = {
                    "planes": count,
                    "dry": int(self.dry),
                    **self.plane.fields(),
                    **self.work.psum_fields(sums, tap, images, part),
                    "pb0": biases + tap,
                    "ob0": first + group,
                    "om0": self.groups,
                }
                builder.run(
                    "LOGITS",
                    fields,
                    shifts(SH0=(-24, (), (w, source)), SH1=(8, (w, source), ())),
                    reads=[*sums.read, ("PBUF", biases, PARAMETER_ENTRIES)],
                    writes=[("LOGIT", first, count * self.groups)],
                )
        builder.pool["PARAMETERS"].give_back(biases)

    def _end(self, images: Range) -> None:
        """Store the logits of some images; when training, their loss gradient too."""
        size = self.builder.config.abuf_depth
        assert self._logits is not None
        errors = ("the errors of one image take {} beats of an output buffer", "abuf_depth", self.groups, size)
        for part in equal_ranges(*images, planes_at_once(self.builder, self.layer.name, self.plane, also=(errors,))):
            self._loss(part, self._logits + (part[0] - images[0]) * self.groups)

    def _loss(self, images: Range, logits: Address) -> None:
        builder, network, (low, high) = self.builder, self.builder.network, images
        name, groups = self.layer.name, self.groups
        count = high - low
        entries, every = count * groups, (0, groups)
        region = builder.memory[name, "logits"]
        builder.store(
            Source.LOGIT, region, [(images, every)], region.at(low), n0=2 * entries, addr=logits, length=entries
        )
        if not builder.training:
            return
        labels, error = builder.memory[INPUT, "labels"], builder.memory[name, "error"]
        builder.load(Dest.LABEL, labels, [(images, (0, 1))], labels.at(low), n0=count, addr=0, length=count)
        oa = builder.ring["OA"].take(entries)
        builder.put(
            Opcode.SOFTMAX,
            {
                "images": count,
                "classes": network.classes,
                "squared": int(network.loss == "squared"),
                "logit0": logits,
                "oa0": oa,
            },
            reads=[PlannedAccess("LOGIT", ((logits, logits + entries),)), PlannedAccess("LABEL", ((0, count),))],
            writes=[PlannedAccess("OA", ((oa, oa + entries),))],
        )
        builder.store(
            Source.OA,
            error,
            [(images, every)],
            error.at(low),
            n0=entries * error.unit // builder.config.beat_bytes,
            addr=oa,
            length=entries,
        )
