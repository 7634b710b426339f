"""The steps of a training run on a device, with progress, checkpoints and checks against the golden model."""

import dataclasses
import functools
import time
from typing import Any

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.datasets.batches import RunBatches
from gradloom.host.datasets.data import Dataset
from gradloom.host.devices.device import MachineError
from gradloom.host.devices.limits import LimitReached, sum_widths, told
from gradloom.host.devices.opening import STEPS_PER_START, MemoryOptions
from gradloom.host.devices.session import Score, Session
from gradloom.host.devices.verification import CheckFailed, compare_tensors
from gradloom.host.knobs import Knobs
from gradloom.host.runs.reporting import Reporter, StepReport
from gradloom.host.runs.run_folder import RunFolder
from gradloom.models import digests
from gradloom.models.golden import step as golden
from gradloom.models.images import Augmentation
from gradloom.models.network import Network, Training
from gradloom.models.state import State

__all__ = ["Trainer", "schedule"]


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


class Trainer:
    """The steps of one run, from a state to the run's end.

    Parameters
    ----------
    record : dict
        The run's settings and what has been measured (``run.json``), which grows.
    reporter : :class:`~gradloom.host.runs.reporting.Reporter`
    """

    def __init__(
        self, folder: RunFolder, record: dict[str, Any], network: Network, config: Config, data: Dataset, state: State,
        reporter: Reporter,
    ) -> None:
        self.reporter = reporter
        self.folder, self.record, self.network, self.config = folder, record, network, config
        self.data, self.state = data, state
        self.batch, self.total, self.per_epoch = record["batch"], record["total_steps"], record["steps_per_epoch"]
        self.hypers = schedule(record, network)
        augmentation = Augmentation.parse(record["data"].get("augment", "none"))
        self.batches = RunBatches(data, self.batch, state.seed, augmentation)
        self.previous: dict[str, Any] | None = None

    def run(self, memory: MemoryOptions) -> None:
        """Train to the end, and write the results.

        Raises
        ------
        :exc:`~gradloom.host.devices.verification.CheckFailed`
            If a checked step differs from the golden model.
        :exc:`~gradloom.host.devices.device.MachineError`
            If a step cannot be computed or the machine stops otherwise.
        """
        began = time.monotonic()
        with Session(
            self.network, self.config, self.batch, self.record["device"], self.data.exponent, self.state.seed, memory,
            export_dw=self.record["check"] == "all", knobs=Knobs.from_former(self.record.get("schedule", {}))[0],
        ) as session:
            built = time.monotonic() - began
            self.folder.begin(self.record)
            session.load(self.state)
            progress = self.reporter.steps(self.total, self.state.step)
            session.notice = progress.warn
            if built > 2:
                progress.note(f"machine ready after {built:.0f} s")
            self.previous = self.record["cycles"]
            try:
                while self.state.step < self.total:
                    self._start(session, progress)
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

    def _start(self, session: Session, progress: StepReport) -> None:
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
        images, labels = [x for x, _ in batches], [y for _, y in batches]
        outcomes = session.train(images, labels, self.hypers[first : first + count], report)
        self.state = session.state()
        for offset, outcome in enumerate(outcomes):
            entry = {"step": first + offset, "loss": outcome.loss, "accuracy": outcome.correct / self.batch}
            if outcome.saturated:
                entry["saturated_logits"] = outcome.saturated
            if outcome.near:
                entry["near_limit"] = [{"layer": layer, "sums": name, "bits": bits}
                                       for (layer, name), bits in outcome.near.items()]
            self.record["steps"].append(entry)
        self.record["steps"][-1]["sha256"] = digests.parameters_digest(self.network, self.state)
        self.record["steps"][-1]["cycles"] = None if cycles is None else (session.cycles or 0) - cycles
        if before is not None:
            self._check(session, before, batches[-1], first)
        if self.state.step % self.per_epoch == 0 or self.state.step == self.total:
            self._end_epoch(session, progress)
        report(count)

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

    def _check(self, session: Session, before: State, batch: tuple[np.ndarray, np.ndarray], step: int) -> None:
        with told(f"golden model beside the device, step {step}"):
            result = golden.train_step(self.network, before, *batch, self.hypers[step],
                                       widths=sum_widths(self.network, self.config))
        comparison = compare_tensors(self.network, step, result, before, session)
        self.record["steps"][-1]["checked_bytes"] = comparison.bytes
        if comparison.difference is not None:
            raise CheckFailed(f"step {step} differs from the golden model: {comparison.difference}")

    def _end_epoch(self, session: Session, progress: StepReport) -> None:
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
        self.reporter.line(f"{test}{cycles}parameters {last['sha256'][:16]}, report {self.folder.path / 'report.html'}")
        if cost is not None:
            self.reporter.line(f"on the board: {cost}")
