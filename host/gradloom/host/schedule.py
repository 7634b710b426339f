"""From a network to a program: one training step (or a forward pass) in a loop, with all its scales."""

import functools
import itertools
from collections.abc import Callable, Sequence

from gradloom.host import schedule_backward, schedule_forward, schedule_shortcut, schedule_update
from gradloom.host.assembler import Instruction
from gradloom.host.choices import BY_RULES, Choices, find_choices
from gradloom.host.gradient_lines import GradientLines
from gradloom.host.im2col import lower
from gradloom.host.layout import ceil_div
from gradloom.host.memory import ALIGNMENT, memory_map
from gradloom.host.pacing import Deadlock, Pacer, Work
from gradloom.host.plan import Plan
from gradloom.host.tiling import BASE, Builder, ScheduleError, shifts
from gradloom.host.token_check import MAXIMUM, waits_in_queue
from gradloom.host.tokens import Overwritten
from gradloom.host.turn import last_layers, turn
from gradloom.models.golden import DX_CALIBRATION
from gradloom.models.network import INPUT, Conv, FullyConnected, Kind, Layer, Network, Subsample
from gradloom.models.state import delayed_kinds
from gradloom.rtl import microprograms
from gradloom.rtl.channels import Unit, unit_of
from gradloom.rtl.config import Config
from gradloom.rtl.isa import Dest, Opcode

__all__ = ["compile_network"]

_UCODE_WORDS = 36
"""Words of one UCODE command: whole microinstructions, within the longest command."""


def compile_network(
    network: Network,
    config: Config,
    batch: int,
    *,
    training: bool = True,
    calibrate: bool = False,
    slots: int = 1,
    table: int = 1,
    export_dw: bool = False,
    parts: int = 1,
    memory_base: int = 0,
    choices: Choices | None = None,
) -> Plan:
    """Program and memory map of a network on a machine.

    Parameters
    ----------
    batch : :class:`int`
        Images of a step.
    training : :class:`bool`
        Else only the forward pass up to the logits; exponents stay as they are.
    calibrate : :class:`bool`
        Every operation first finds the exponent of what it writes by a dry run (the first step of a training
        run).
    slots : :class:`int`
        Places for inputs, labels and logits: the most steps of one start.
    table : :class:`int`
        Entries of the hyperparameter table.
    export_dw : :class:`bool`
        Also store the weight gradients.
    parts : :class:`int`
        Process the batch in so many parts one after the other; the results are the same.
    memory_base : :class:`int`
        Byte address of the machine's memory window.
    choices : :class:`~gradloom.host.choices.Choices`, optional
        For the training steps; by default those of the package for this network, machine and batch, or else the rules'. The
        calibrating step, the forward pass alone and a batch in parts follow the rules.

    Raises
    ------
    :exc:`~gradloom.host.tiling.ScheduleError`
        If something does not fit; the message names layer, resource and sizes.
    """
    _check(network, config, batch, training, calibrate, parts, memory_base)
    lowered = lower(network, config)
    memory = memory_map(
        lowered.network,
        config,
        batch,
        training=training,
        steps=slots,
        table=table,
        dw=export_dw or parts > 1,
        sums=parts > 1,
    )
    if calibrate or not training or parts > 1:
        choices = BY_RULES
    elif choices is None:
        choices = find_choices(network, config, batch)
    builder = Builder(lowered.network, config, memory, batch=batch, training=training, choices=choices, lowered=lowered)
    try:
        labels = _Step(builder, calibrate, export_dw, parts).emit(memory_base)
        builder.check_choices()
    except Deadlock:
        if choices == BY_RULES:
            raise
        raise ScheduleError("schedule: with its choices works wait for each other: make it anew with gradloom tune") from None
    except Overwritten as error:
        raise ScheduleError(
            f"network {network.name!r} on configuration {config.name!r}: {error}: "
            f"raise abuf_depth, mbuf_depth or dw_depth, or change the batch"
        ) from None
    address = ceil_div(memory.size, ALIGNMENT) * ALIGNMENT
    return Plan(
        network=network,
        lowered=lowered,
        config=config,
        batch=batch,
        training=training,
        calibrate=calibrate,
        export_dw=export_dw,
        slots=slots,
        table=table,
        memory=memory,
        memory_base=memory_base,
        program_address=memory_base + address,
        instructions=tuple(builder.recorder.instructions),
        labels=labels,
        offer=builder.offer,
    )


def _check(
    network: Network,
    config: Config,
    batch: int,
    training: bool,
    calibrate: bool,
    parts: int,
    memory_base: int,
) -> None:
    if not network.arithmetic.hardware:
        raise ScheduleError(
            f"network {network.name!r}: the format {network.format} is software only, the machine runs pint8: give "
            f"--format pint8, or --device golden{'' if network.arithmetic.real else ' or emulator'}"
        )
    if memory_base % ALIGNMENT:
        raise ScheduleError(f"memory_base must be a multiple of {ALIGNMENT}, not {memory_base:#x}")
    tensors = 8 * (len(network.layers) + 1)
    if tensors > config.tensors:
        raise ScheduleError(
            f"network {network.name!r} has {tensors} tensor numbers, "
            f"configuration {config.name!r} has {config.tensors} (tensors): raise tensors"
        )
    if network.classes > config.max_classes:
        raise ScheduleError(
            f"layer {network.logits.name!r}: {network.classes} classes, configuration {config.name!r} has "
            f"{config.max_classes} (max_classes): raise max_classes"
        )
    if waits_in_queue(config.queue_words) > MAXIMUM // 2:
        raise ScheduleError(
            f"configuration {config.name!r}: {config.queue_words} words of a command queue (queue_words) let "
            f"semaphores pass {MAXIMUM}: lower queue_words"
        )
    if not 1 <= batch <= 32768:
        raise ScheduleError(f"a batch must have 1..32768 images, not {batch}")
    if not 1 <= parts <= batch:
        raise ScheduleError(f"a batch of {batch} images cannot be processed in {parts} parts")
    if calibrate and (parts > 1 or not training):
        raise ScheduleError("calibration is part of a training step on a whole batch: set parts to 1")


class _Step:
    def __init__(self, builder: Builder, calibrate: bool, export_dw: bool, parts: int) -> None:
        self.builder, self.network = builder, builder.network
        self.calibrate, self.export_dw = calibrate, export_dw
        edges = [builder.batch * i // parts for i in range(parts + 1)]
        self.parts = list(itertools.pairwise(edges))
        loaders = {dest.name: unit_of(builder.config, Opcode.LOAD, dest) for dest in (Dest.IBUF, Dest.EBUF, Dest.WBUF)}
        self.pacer = Pacer(builder.recorder, loaders, builder.choices)
        builder.between = self.pacer.sweeps_wait
        self.lines = GradientLines(builder)

    def emit(self, memory_base: int) -> dict[int, int]:
        """The whole program. Returns the labels of its LOOP."""
        recorder, memory, network = self.builder.recorder, self.builder.memory, self.network
        for first in range(0, len(microprograms.WORDS), _UCODE_WORDS):
            recorder.emit(
                Opcode.UCODE,
                {"address": first},
                tail=tuple(microprograms.WORDS[first : first + _UCODE_WORDS]),
            )
        starts = {
            "memory": 0,
            "input": memory[INPUT, "z"].address,
            "labels": memory[INPUT, "labels"].address,
            "logits": memory[network.logits.name, "logits"].address,
            "hyper": memory["", "hyper"].address,
        }
        for name, address in starts.items():
            recorder.sequence(Opcode.SETBASE, breg=BASE[name], value=memory_base + address)
        if self.builder.training:
            for tid in sorted({tid for tid, _, _ in self._scales()}):
                recorder.sequence(Opcode.EXPSET, shifts(SH0=(0, (tid,), ())), target=tid, clear=1)
        body = len(recorder.instructions)
        if self.builder.training:
            self._train()
        else:
            self._forward()
            self.pacer.finish()
        recorder.tag = 0
        regions = {
            "input": memory[INPUT, "z"],
            "labels": memory[INPUT, "labels"],
            "logits": memory[network.logits.name, "logits"],
        }
        for name, region in regions.items():
            recorder.sequence(Opcode.ADDBASE, breg=BASE[name], value=region.step_bytes)
        loop = recorder.sequence(Opcode.LOOP)
        recorder.sequence(Opcode.END)
        return {loop: body}

    def _scales(self) -> list[tuple[int, int, int]]:
        """(tensor of the statistics, tensor of the exponent, F) of every SCALE at a step's end."""
        network, tid = self.network, self.builder.tid
        found = [
            (tid(layer.name, kind),) * 2 + (network.rounding.f(kind),)
            for layer in network.layers
            for kind in delayed_kinds(network, layer.name)
        ]
        for layer in network.weighted:
            found += [
                (tid(layer.name, now), tid(layer.name, ahead), network.rounding.f(now))
                for now, ahead in ((Kind.W, Kind.W_NEXT), (Kind.V, Kind.V_NEXT))
            ]
        return found

    def _train(self) -> None:
        builder, recorder = self.builder, self.builder.recorder
        recorder.tag = 0
        builder.hyperparameters_due = True
        for images in self.parts:
            builder.images = images
            if not self.calibrate:
                builder.turn, builder.last_layers = turn(builder), last_layers(builder)
            self._forward()
            self._backward(first=images == self.parts[0], last=images == self.parts[-1])
            self.pacer.finish()
        recorder.tag = 4
        self._scale()

    def _scale(self) -> None:
        """Exponents of the next step, each as soon as the A-Core is through with what uses the present one."""
        recorder, last = self.builder.recorder, dict[int, int]()
        for place, instruction in enumerate(recorder.instructions):
            if instruction.unit(self.builder.config) == Unit.ACORE:
                last |= dict.fromkeys(instruction.tensors, place)
        commands = list[tuple[int, Instruction]]()
        for stat, target, f in self._scales():
            place = max(last.get(stat, -1), last.get(target, -1))
            if stat != target:
                now = Instruction(Opcode.EXPSET, {"target": stat}, shifts(SH0=(0, (target,), ())))
                commands.append((place, now))
            commands.append((place, Instruction(Opcode.SCALE, {"tid": stat, "target": target, "f": f})))
        recorder.behind_acore(commands)

    def _work(self, layer: str, what: str, *works: Work, line: str = "") -> None:
        """Work beside the rest; alone while calibrating, as the exponents of one operation are an input of the next. ``what``: it
        makes of the layer."""
        name = f"{layer} {what}"
        self.builder.offer.works.append(name)
        self.pacer.add(*works, line=line, name=name)
        if self.calibrate:
            self.pacer.finish()

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

    def _forward(self) -> None:
        builder, layers, images = self.builder, self.network.layers, self.builder.images
        self.pacer.give(builder.part(INPUT, "z", images))
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
            else:
                self._work(layer.name, Kind.Z.name, *schedule_forward.forward(builder, layer))

    def _backward(self, *, first: bool, last: bool) -> None:
        """Layers in reverse. A layer's weights are updated once its backward convolution has used them, beside the
        work on the layers before it."""
        builder, network = self.builder, self.network
        for layer in reversed(network.layers):
            name = layer.name
            if not network.needs_error(name):
                continue
            if isinstance(layer, Subsample):
                self._work(name, Kind.DZ.name, *schedule_backward.output_error(builder, name))
                self._work(name, "scatter", schedule_shortcut.scatter(builder, layer))
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
                if isinstance(main, Conv | FullyConnected):
                    self._update(main, first, last)
            if isinstance(layer, Conv | FullyConnected):
                self._weighted(layer, first, last)

    def _weighted(self, layer: Conv | FullyConnected, first: bool, last: bool) -> None:
        """dx of a layer and what else depends on it."""
        builder, network, name = self.builder, self.network, layer.name
        sums = functools.partial(schedule_backward.Accumulation, builder, layer, first=first, last=last)
        if layer.norm == "frn":
            self._scaled(
                name,
                Kind.DX,
                schedule_backward.accumulator_zero(builder, layer),
                lambda dry: [sums(dry=dry).emit()],
                dry_shift=DX_CALIBRATION + network.rounding.f(Kind.DX),
            )
        else:
            self._work(name, Kind.DX.name, sums().emit())
        if network.sends_ds(name):
            self._scaled(
                name,
                Kind.DS,
                schedule_backward.ds_zero(builder, layer),
                functools.partial(schedule_backward.second_error, builder, layer),
            )
        if network.sends_ds(name) or not network.needs_error(layer.input):
            self._update(layer, first, last)

    def _update(self, layer: Conv | FullyConnected, first: bool, last: bool) -> None:
        builder, recorder = self.builder, self.builder.recorder
        if self.calibrate:
            w, v, w_next, v_next = (
                builder.tid(layer.name, kind) for kind in (Kind.W, Kind.V, Kind.W_NEXT, Kind.V_NEXT)
            )
            recorder.sequence(Opcode.EXPSET, shifts(SH0=(0, (v,), ())), target=v, clear=1)
            recorder.sequence(Opcode.EXPSET, shifts(SH0=(-16, (v,), ())), target=v_next)
            recorder.sequence(Opcode.EXPSET, shifts(SH0=(0, (w,), ())), target=w_next)
            dry = schedule_update.WeightUpdate(builder, layer, self.lines, dry=True, first=first, last=last)
            self._work(layer.name, "DW", *dry.emit())
            recorder.sequence(Opcode.SCALE, tid=v, target=v_next, f=self.network.rounding.f(Kind.V))
        update = schedule_update.WeightUpdate(
            builder, layer, self.lines, export=self.export_dw, first=first, last=last
        )
        self._work(layer.name, "DW", *update.emit(), line=update.line.name)
