"""Backward pass of a normalisation and activation: the order in which it takes images, channel groups and rows, piece by piece."""

import functools

from gradloom.contracts.isa import Source
from gradloom.host.backward.norm_backward_commands import Streams, accumulate, error_name, update_parameters
from gradloom.host.backward.schedule_backward import SCALAR_CYCLES
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.compilation.stream_fit import holds, planes_at_once
from gradloom.host.compilation.transfers import PARAMETER_ENTRIES
from gradloom.host.order.pieces import OPEN, BoundEngine, Deferred, Gate, Piece, Relief, Work
from gradloom.host.order.tasks import Address, Step
from gradloom.host.tiles.row_parts import cut_rows, fits_beside, row_parts
from gradloom.models.network import Conv, FullyConnected

__all__ = ["NormBackward"]

_UPDATE_CYCLES, _BIAS_CYCLES = 250, 60
"""Cycles of the A-Core for an update of parameters, and of a bias alone, about."""
_OTHERS = 4
"""Bunches of parameters that nobody but their update waits for, below which a work makes room itself before it needs any."""
_BUNCH = 8
"""Groups for which it is taken together, so that the next ones' parameters come while one is worked at."""
Range = tuple[int, int]


class NormBackward:
    """dx of a layer, sums of its parameters' gradients and, after the batch's last part, their update.

    By images it takes range after range of images, and the sums of all channel groups are on chip meanwhile. Where they do
    not fit, it takes one channel group after the other.
    """

    def __init__(
        self, builder: ProgramBuilder, layer: Conv | FullyConnected, *, dry: bool = False, first: bool = True, last: bool = True
    ) -> None:
        self.builder, self.layer = builder, layer
        self.dry, self.first, self.last = dry, first, last
        channels, y, x = builder.network.shape(layer.name)
        self.plane, self.groups = Plane(y, x), builder.groups(channels)
        self._tag = 8 * builder.network.index(layer.name) + 2
        self._rows: list[Range] = []
        frn, bits = layer.norm == "frn", layer.act in ("tlu", "relu")
        self._together = holds(builder, self.plane) and (not frn or fits_beside(builder, self.plane))
        """Whether all rows of a plane are on chip at once."""
        if self._together:
            one = frn and builder.images[1] - builder.images[0] == 1
            self._rows = cut_rows(builder, self.plane, bits=bits) if one else []
        else:
            self._rows = row_parts(builder, layer.name, self.plane, (0, y), bits=bits)
        # Rows have one more entry, the sum of products of their plane.
        self._entries = PARAMETER_ENTRIES + bool(self._rows)
        self._fits = self.groups * self._entries <= builder.pool["PARAMETERS"].size
        self._limit = 1 if self._rows else planes_at_once(builder, layer.name, self.plane)

    def _start(self, group: int, place: Address | None = None) -> Address:
        """Load a group's parameters and sums, to a place that has been taken before or to a new one."""
        memory = self.builder.memory
        sums = memory["", "zeros"] if self.first else memory[self.layer.name, "sums"]
        return self.builder.load_parameters(self.layer.name, group, sums=sums, entries=self._entries, place=place)

    def _gate(self, images: Range, groups: Range) -> Gate:
        """Waits for all errors of some planes, as their parameters stay on chip until the last row has been added up."""
        name = self.layer.name
        errors = self.builder.region(name, error_name(self.builder, self.layer), images, groups)
        return Gate((errors,)) | self._after_forward()

    def _after_forward(self) -> Gate:
        """Waits for the end of the forward pass, whose parameter sets are no longer on chip then; the last layers wait only if
        there is no room for both."""
        if self.builder.beside_forward and self.layer in self.builder.last_layers:
            return OPEN
        return Gate((self.builder.region(self.builder.network.logits.name, "error", self.builder.images),))

    def emit(self) -> list[Work]:
        """All commands."""
        low, high = self.builder.images
        if self.builder.fine_grained and self._fits and self._together and self.layer.norm == "frn" and high - low <= self._limit:
            works = [self._one_group(group) for group in range(self.groups)]
        else:
            works = [self._by_images() if self._fits else self._by_groups()]
        return [self.builder.planned(self._tag, work) for work in works]

    def _one_group(self, group: int) -> Work:
        """One channel group of all images, which others of the A-Core's pieces may come between."""
        builder, layer, images = self.builder, self.layer, self.builder.images
        room, gate = ((builder.pools["PARAMETERS"], self._entries),), self._after_forward()
        if not self._rows:
            cycles = (images[1] - images[0]) * max(self.plane.nb, SCALAR_CYCLES)
            yield Piece(BoundEngine.ACORE, cycles, gate, room)
            place = builder.pool["PARAMETERS"].take(self._entries)
            self._start(group, place)
            accumulate(builder, layer, images, group, place, self.plane, self.dry)
        else:
            streams = Streams(builder, layer, group, self._rows)
            for number, rows in enumerate(self._rows):
                cycles = Plane(rows[1] - rows[0], self.plane.x).nb
                yield Piece(BoundEngine.ACORE, cycles, gate, room=() if number else room, passes_first=True)
                if not number:
                    place = builder.pool["PARAMETERS"].take(self._entries)
                    self._start(group, place)
                streams.load(images, rows)
                accumulate(
                    builder, layer, images, group, place, self.plane, self.dry, rows, "FRN_ADD" if number else "FRN_SUM", streams
                )
            for rows in self._rows:
                yield Piece(BoundEngine.ACORE, Plane(rows[1] - rows[0], self.plane.x).nb, loads=False)
                accumulate(builder, layer, images, group, place, self.plane, self.dry, rows, "FRN_ERR", streams)
        yield Piece(BoundEngine.ACORE, _UPDATE_CYCLES, late=True)
        self._end(group, place)

    def _by_images(self) -> Work:
        builder, pool, places = self.builder, self.builder.pool["PARAMETERS"], dict[int, Address]()
        ends, updates = dict[int, tuple[Step, ...]](), dict[int, Deferred]()

        pieces = builder.sweeps(self.groups, self._limit, self.plane.nb, gate=self._gate, prepared=SCALAR_CYCLES)
        for piece, images, groups in pieces:
            piece = piece._replace(cycles=piece.cycles // max(1, len(self._rows)))
            once = images == builder.images
            """Each group has its turn once, with all images."""
            wanted = max(_BUNCH // len(groups), 1) * len(groups) if once else self.groups
            fresh = range(groups.start, min(groups.start + wanted, self.groups)) if groups.start not in places else range(0)
            relief = Relief(tuple(updates.values()), len(fresh)) if once else Relief()
            room = ((pool.real, self._entries * len(fresh)),) if fresh else ()
            if once and fresh and places:
                # After the piece before.
                builder.call(functools.partial(self._short_of_room, relief))
            yield piece._replace(room=room, relief=relief)
            for group in fresh:
                places[group] = pool.take(self._entries)
                ends[group] = builder.branch(functools.partial(self._end, group, places[group]))
                updates[group] = Deferred(functools.partial(self._perform, ends[group]))
            for group in groups:
                if images[0] == builder.images[0]:
                    # Not those of all groups at once, which would keep the Sequencer busy.
                    self._start(group, places[group])
                yield from self._accumulate(images, group, places[group])
        builder.call(lambda: self._count_late(sum(not update.done for update in updates.values())))
        for group in places:
            cycles = _UPDATE_CYCLES if self.layer.norm == "frn" else _BIAS_CYCLES
            yield Piece(BoundEngine.ACORE, cycles, late=True, deferred=updates[group])
            builder.call(updates[group].do, ends[group])
            builder.call(lambda: self._count_late(-1))

    def _count_late(self, more: int) -> None:
        self.builder.late_sets += more

    def _short_of_room(self, relief: Relief) -> None:
        """Make room where hardly anybody else will."""
        full = self.builder.pools["PARAMETERS"].find(self._entries * relief.most) is None
        if full and self.builder.late_sets < _OTHERS * relief.most:
            relief.give()

    def _perform(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            step.perform(self.builder)

    def _by_groups(self) -> Work:
        every = self.builder.images
        for group in range(self.groups):
            for images in self.builder.ranges(every, self._limit, self.plane.nb):
                first, last = images[0] == every[0], images[1] == every[1]
                room = ((self.builder.pools["PARAMETERS"], self._entries),) if first else ()
                cycles = (images[1] - images[0]) * self.plane.nb // max(1, len(self._rows))
                yield Piece(BoundEngine.ACORE, cycles, self._gate(every, (group, group + 1)), room)
                if first:
                    place = self._start(group)
                yield from self._accumulate(images, group, place)
                if last:
                    self._end(group, place)

    def _accumulate(self, images: Range, group: int, place: Address) -> Work:
        """One channel group of some images; of a plane in rows all sums come first, then all errors, piece by piece."""
        builder, layer = self.builder, self.layer
        if not self._rows:
            accumulate(builder, layer, images, group, place, self.plane, self.dry)
            return
        parts = [(rows, self.dry, "FRN_ERR") for rows in self._rows]
        if layer.norm == "frn":
            parts = [(rows, False, "FRN_ADD" if number else "FRN_SUM") for number, rows in enumerate(self._rows)] + parts
        for number, (rows, dry, program) in enumerate(parts):
            if number:
                yield Piece(BoundEngine.ACORE, Plane(rows[1] - rows[0], self.plane.x).nb, inside=True)
            accumulate(builder, layer, images, group, place, self.plane, dry, rows, program)

    def _end(self, group: int, place: Address) -> None:
        self.builder.pool["PARAMETERS"].give_back(place)
        if self.dry:
            return
        if self.last:
            update_parameters(self.builder, self.layer, group, place)
            return
        region = self.builder.memory[self.layer.name, "sums"]
        box = [((group, group + 1), (0, 1))]
        self.builder.store(Source.PBUF, region, box, region.at(group), n0=12, addr=place + 3, length=3)
