"""One training step or forward pass: the works of all its layers and phases, and the scales at its end."""

import functools
import itertools
from collections.abc import Callable, Sequence

from gradloom.contracts.engines import unit_of
from gradloom.contracts.isa import Dest, Opcode
from gradloom.host.backward import norm_backward, schedule_backward, weight_gradient
from gradloom.host.backward.gradient_queues import GradientQueues
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.forward import schedule_forward, schedule_shortcut
from gradloom.host.order.list_scheduler import ListScheduler
from gradloom.host.order.pieces import OPEN, Work
from gradloom.host.training_step.deferred_updates import ArrivingUpdates, held_scales, seeds
from gradloom.host.training_step.loss_overlap import beside_forward, last_layers, turn
from gradloom.host.training_step.scales import scale_all, scales
from gradloom.models.golden.step import DX_CALIBRATION
from gradloom.models.network import Conv, FullyConnected, Kind, Layer, Subsample

__all__ = ["Step"]


class Step:
    """Emits a step (:meth:`emit`), or only the updates that the step before has left (:meth:`emit_arriving`).

    Parameters
    ----------
    calibrate, export_dw, parts : as for :func:`~gradloom.host.schedule.compile_network`
    arriving, leaving : layers whose weights the step before has left to be updated, and those that this one leaves to the next
    """

    def __init__(
        self,
        builder: ProgramBuilder,
        *,
        calibrate: bool = False,
        export_dw: bool = False,
        parts: int = 1,
        arriving: tuple[Conv | FullyConnected, ...] = (),
        leaving: tuple[Conv | FullyConnected, ...] = (),
    ) -> None:
        self.builder, self.network = builder, builder.network
        self.calibrate, self.export_dw, self.leaving = calibrate, export_dw, leaving
        edges = [builder.batch * i // parts for i in range(parts + 1)]
        self.parts = list(itertools.pairwise(edges))
        loaders = {dest.name: unit_of(builder.config, Opcode.LOAD, dest) for dest in (Dest.IBUF, Dest.EBUF, Dest.WBUF)}
        self.scheduler = ListScheduler(builder.recorder, loaders, builder.knobs)
        builder.begin_step(self.scheduler.wgrad_waits, self.scheduler.add, seeds(builder, arriving))
        self.lines = GradientQueues(builder, leaving)
        self.arrivals = ArrivingUpdates(builder, arriving, leaving) if arriving else None

    def emit(self) -> None:
        """The whole step."""
        builder, recorder = self.builder, self.builder.recorder
        recorder.tag = 0
        if not builder.training:
            self._forward()
            self.scheduler.finish()
            return
        builder.hyperparameters_due = self.arrivals is None
        for images in self.parts:
            builder.images = images
            if not self.calibrate:
                builder.turn, builder.last_layers = turn(builder), last_layers(builder)
                builder.beside_forward = beside_forward(builder)
            self._update_arriving()
            self._forward()
            self._backward(first=images == self.parts[0], last=images == self.parts[-1])
            self.scheduler.finish()
        recorder.tag = 4
        held = {scale for found in held_scales(builder, self.leaving).values() for scale in found}
        scale_all(builder, [scale for scale in scales(builder) if scale not in held])

    def emit_arriving(self) -> None:
        """Only what the step before has left."""
        assert self.arrivals is not None
        self._update_arriving()
        self.scheduler.finish()
        self.builder.recorder.tag = 4
        self.arrivals.scale()

    def _update_arriving(self) -> None:
        if self.arrivals is None:
            return
        for layer in self.arrivals.layers:
            self._update(layer, True, True, late=True)

    def _work(self, layer: str, what: str, *works: Work, line: str = "") -> None:
        """Work beside the rest; alone while calibrating, as the exponents of one operation are an input of the next. ``what``: it
        makes of the layer."""
        name = f"{layer} {what}"
        self.builder.search_space.works.append(name)
        self.scheduler.add(*works, line=line, name=name)
        if self.calibrate:
            self.scheduler.finish()

    def _scaled(
        self,
        layer: str,
        kind: Kind,
        zero: tuple[int, tuple[int, ...], tuple[int, ...]],
        operation: Callable[..., list[Work]],
        *,
        dry_shift: int = 0,
    ) -> None:
        """An operation that encodes a layer's tensor; calibration first finds its exponent from a dry run.

        ``zero`` is the exponent at which the converter's shift (without le) is 0, ``dry_shift`` the shift of
        the dry run.
        """
        if self.calibrate:
            recorder, (constant, plus, minus), tid = self.builder.recorder, zero, self.builder.tid(layer, kind)
            recorder.sequence(
                Opcode.EXPSET, shifts(SH0=(constant + dry_shift, plus, minus)), target=tid, clear=1
            )
            self._work(layer, kind.name, *operation(dry=True))
            recorder.sequence(Opcode.SCALE, tid=tid, target=tid, f=self.network.rounding.f(kind))
        self._work(layer, kind.name, *operation(dry=False))

    # Forward

    def _forward(self) -> None:
        builder, layers, images = self.builder, self.network.layers, self.builder.images
        self._forward_layers(layers[: len(layers) - len(builder.last_layers)])
        for part in builder.turn:
            builder.images = part
            self._forward_layers(builder.last_layers)
        builder.images = images

    def _forward_layers(self, layers: Sequence[Layer]) -> None:
        builder, network = self.builder, self.network
        for layer in layers:
            if self.calibrate and layer.name != network.logits.name and not isinstance(layer, Subsample):
                self._scaled(
                    layer.name,
                    Kind.Z,
                    schedule_forward.forward_zero(builder, layer),
                    functools.partial(schedule_forward.forward, builder, layer),
                )
                continue
            with builder.gated(self.arrivals.gate(layer.name) if self.arrivals else OPEN):
                works = schedule_forward.forward(builder, layer)
            self._work(layer.name, Kind.Z.name, *(self.arrivals.scaled(layer.name, works) if self.arrivals else works))

    # Backward

    def _backward(self, *, first: bool, last: bool) -> None:
        """Layers in reverse. A layer's weights are updated once its backward convolution has used them, beside the
        work on the layers before it."""
        builder, network = self.builder, self.network
        if self.arrivals is None:
            for tid in sorted(seeds(builder, self.leaving)):
                builder.recorder.aside(Opcode.SEED, tid=tid)
        for layer in reversed(network.layers):
            name = layer.name
            if not network.needs_error(name):
                continue
            if isinstance(layer, Subsample):
                self._work(name, Kind.DZ.name, *schedule_backward.output_error(builder, name))
                scatter = builder.planned(8 * network.index(name) + 1, schedule_shortcut.scatter(builder, layer))
                self._work(name, "scatter", scatter)
                continue
            if name != network.logits.name:
                main, images = network.main_consumer(name), builder.images
                for part in builder.turn if main in builder.last_layers else (images,):
                    builder.images = part
                    self._scaled(
                        name,
                        Kind.DZ,
                        schedule_backward.output_zero(builder, name),
                        functools.partial(schedule_backward.output_error, builder, name),
                    )
                builder.images = images
                if isinstance(main, Conv | FullyConnected) and main not in self.leaving:
                    self._update(main, first, last)
            if isinstance(layer, Conv | FullyConnected):
                self._weighted(layer, first, last)

    def _weighted(self, layer: Conv | FullyConnected, first: bool, last: bool) -> None:
        """dx of a layer and what else depends on it."""
        builder, network, name = self.builder, self.network, layer.name
        sums = functools.partial(norm_backward.NormBackward, builder, layer, first=first, last=last)
        if layer.norm == "frn":
            self._scaled(
                name,
                Kind.DX,
                schedule_backward.accumulator_zero(builder, layer),
                lambda dry: sums(dry=dry).emit(),
                dry_shift=DX_CALIBRATION + network.rounding.f(Kind.DX),
            )
        else:
            self._work(name, Kind.DX.name, *sums().emit())
        if network.sends_ds(name):
            self._scaled(
                name,
                Kind.DS,
                schedule_backward.ds_zero(builder, layer),
                functools.partial(schedule_backward.second_error, builder, layer),
            )
        if (network.sends_ds(name) or not network.needs_error(layer.input)) and layer not in self.leaving:
            self._update(layer, first, last)

    def _update(self, layer: Conv | FullyConnected, first: bool, last: bool, *, late: bool = False) -> None:
        """The update of a layer's weights, ``late`` if the step before has left it."""
        builder, recorder = self.builder, self.builder.recorder
        if self.calibrate:
            w, v, w_next, v_next = (
                builder.tid(layer.name, kind) for kind in (Kind.W, Kind.V, Kind.W_NEXT, Kind.V_NEXT)
            )
            recorder.sequence(Opcode.EXPSET, shifts(SH0=(0, (v,), ())), target=v, clear=1)
            recorder.sequence(Opcode.EXPSET, shifts(SH0=(-16, (v,), ())), target=v_next)
            recorder.sequence(Opcode.EXPSET, shifts(SH0=(0, (w,), ())), target=w_next)
            dry = weight_gradient.WeightGradient(builder, layer, self.lines, dry=True, first=first, last=last)
            self._work(layer.name, "DW", *dry.emit())
            recorder.sequence(Opcode.SCALE, tid=v, target=v_next, f=self.network.rounding.f(Kind.V))
        update = weight_gradient.WeightGradient(
            builder, layer, self.lines, export=self.export_dw, first=first, last=last, late=late
        )
        self._work(layer.name, "DW", *update.emit(), line=update.line.name)
