"""Planted in the host and the golden model (``host``, ``models``); each with the fastest test that notices it."""

from gradloom.verif.planted.fault import Fault

__all__ = ["FAULTS"]

_HOST = "host/gradloom/host"
_TESTS = "verif/tests"

FAULTS = (
    Fault(
        "scheduler orders no write after a read",
        f"{_HOST}/order/accesses.py",
        "(write or past.write) and (flat or overlap(past.box, box)):\n                        needs[other]",
        "past.write and (flat or overlap(past.box, box)):\n                        needs[other]",
        f"{_TESTS}/host/order/test_token_order.py",
    ),
    Fault(
        "operands of the array overwrite others that are in use",
        f"{_HOST}/order/allocators.py",
        "start + count <= other or other + length <= start",
        "start + count <= other or other + length <= start + count",
        f"{_TESTS}/host/test_schedule.py",
    ),
    Fault(
        "a tile of rows lacks the last row of its halo",
        f"{_HOST}/tiles/conv_mapping.py",
        "max(start + 1, min(self.rows, high))",
        "max(start + 1, min(self.rows, high - 1))",
        f"{_TESTS}/host/tiles/test_row_tiles.py::test_strips_hold_the_rows_of_their_windows",
    ),
    Fault(
        "an update of a flattened plane goes on into the next row of an odd plane",
        f"{_HOST}/dram/flat_plane.py",
        "return self._of_row if self.x & 1 else self.beats",
        "return self.beats",
        f"{_TESTS}/host/dram/test_flat_plane.py::test_beats_of_a_plane",
    ),
    Fault(
        "the second column of a flattened plane's kernel gives the first position",
        f"{_HOST}/tiles/phase_sweeps.py",
        "tuple(-col for col in range(shape.kx))",
        "(0,) * shape.kx",
        f"{_TESTS}/host/tiles/test_flat_shapes.py::test_two_steps_write_the_bytes_of_the_golden_model",
    ),
    Fault(
        "an overflow of the machine is told of the phase before",
        f"{_HOST}/devices/runner.py",
        "phase = PHASES[tag % 8] if",
        "phase = PHASES[tag % 8 - 1] if",
        f"{_TESTS}/host/devices/test_limits.py::test_the_machines_codes_become_the_same_sentences",
    ),
    Fault(
        "an overflow of a carried update is told of the step in which the machine comes to it",
        f"{_HOST}/devices/runner.py",
        "csr_read(offset('STEP')) - late}",
        "csr_read(offset('STEP'))}",
        f"{_TESTS}/host/devices/test_limits.py::test_a_carried_update_is_that_of_the_step_before_the_counted_one",
    ),
    Fault(
        "the golden model has wider sums than the machine that it stands for",
        f"{_HOST}/devices/opening.py",
        "GoldenModel(network, state, sum_widths(network, config))",
        "GoldenModel(network, state)",
        f"{_TESTS}/host/devices/test_sum_widths.py::test_commands_end_with_the_machines_width_and_exit_code_1",
    ),
    Fault(
        "sums are near their limit a bit too late",
        "models/gradloom/models/golden/run.py",
        "if needed > bits - arith.NEAR_BITS:",
        "if needed > bits - arith.NEAR_BITS + 1:",
        f"{_TESTS}/host/devices/test_limits.py::test_sums_are_near_the_limit_by_their_values",
    ),
    Fault(
        "saturated logits are not counted at the lower end",
        f"{_HOST}/devices/limits.py",
        "(logits >= top) | (logits <= -1 - top)",
        "(logits > top) | (logits <= -1 - top)",
        f"{_TESTS}/host/devices/test_limits.py::test_saturated_logits_are_counted_and_told_once",
    ),
    Fault(
        "the golden model keeps half a step that overflows",
        f"{_HOST}/devices/models.py",
        "state = self._state.copy()",
        "state = self._state",
        f"{_TESTS}/host/devices/test_limits.py::test_a_step_that_overflows_in_its_update_changes_nothing",
    ),
    Fault(
        "evaluation divides whole numbers by their own largest, not as the training did",
        f"{_HOST}/runs/evaluation.py",
        "preparation = trained_preparation(request.weights)",
        "preparation = dataclasses.replace(trained_preparation(request.weights), divisor=None)",
        f"{_TESTS}/host/runs/test_whole_numbers.py::test_evaluation_divides_by_what_the_training_divided_by",
    ),
    Fault(
        "a run of before the divisor was recorded is divided when it goes on",
        f"{_HOST}/datasets/data.py",
        'data.get("divisor", 1)',
        'data.get("divisor", 256)',
        f"{_TESTS}/host/runs/test_whole_numbers.py::test_a_run_before_the_divisor_was_recorded_goes_on_as_it_began",
    ),
    Fault(
        "an image is moved by its place in the batch",
        f"{_HOST}/datasets/batches.py",
        "self._data.train_x[chosen], chosen, self._seed",
        "self._data.train_x[chosen], np.arange(len(chosen)), self._seed",
        f"{_TESTS}/host/datasets/test_batches.py::test_an_image_is_moved_alike_in_every_batch",
    ),
    Fault(
        "diff trains again on images that are not moved",
        f"{_HOST}/diff/diff_runs.py",
        'record["seed"], _augmentation(record))',
        'record["seed"], Augmentation())',
        f"{_TESTS}/host/runs/test_prepared_run.py::test_replay_moves_the_images_as_the_run_did",
    ),
    Fault(
        "evaluation normalises images by their own mean, not as the training did",
        f"{_HOST}/datasets/data.py",
        "preparation.channels or channel_statistics(trained)",
        "channel_statistics(trained)",
        f"{_TESTS}/host/runs/test_prepared_run.py::test_evaluation_normalises_as_the_training_did",
    ),
    Fault(
        "images held out for validation shift and scale those to train with",
        f"{_HOST}/datasets/data.py",
        "preparation.channels or channel_statistics(trained)",
        "preparation.channels or channel_statistics(x)",
        f"{_TESTS}/host/datasets/test_data.py::test_images_that_are_held_out_do_not_normalise",
    ),
    Fault(
        "whoever validates looks at the test images after every epoch",
        f"{_HOST}/runs/trainer.py",
        "(valid is None or last)",
        "(valid is None or self.state.step)",
        f"{_TESTS}/host/runs/test_prepared_run.py::test_test_images_are_looked_at_once",
    ),
    Fault(
        "the health of numbers calls the lower end of the range coarse",
        f"{_HOST}/health/health_measure.py",
        "(value == pint.MIN_VALUE) | (value == pint.MAX_VALUE)",
        "value == pint.MAX_VALUE",
        f"{_TESTS}/host/health/test_health.py::test_classes_by_hand",
    ),
    Fault(
        "the place of results is not tried before work",
        f"{_HOST}/environment.py",
        "with tempfile.TemporaryFile(dir=place) as file:",
        "with tempfile.TemporaryFile() as file:",
        f"{_TESTS}/host/test_environment.py::test_a_folder_that_takes_no_file",
    ),
    Fault(
        "a task that writes a part of a tensor does not wait for those that read it before",
        f"{_HOST}/order/dependences.py",
        "found |= self._reads.meeting(new)",
        "found |= set()",
        f"{_TESTS}/host/order/test_dependences.py::test_any_order_that_keeps_them_is_right",
    ),
    Fault(
        "a write makes tasks forget what lies only partly inside it",
        f"{_HOST}/order/dependences.py",
        "if inside(past.box, new.box)",
        "if overlap(past.box, new.box)",
        f"{_TESTS}/host/order/test_dependences.py::test_any_order_that_keeps_them_is_right",
    ),
    Fault(
        "commands that scatter a shortcut's error are counted for another layer",
        f"{_HOST}/training_step/step.py",
        "builder.planned(8 * network.index(name) + 1, schedule_shortcut.scatter(builder, layer))",
        "builder.planned(0, schedule_shortcut.scatter(builder, layer))",
        f"{_TESTS}/host/backward/test_shortcut_error.py::test_scattered_errors_count_for_their_shortcut",
    ),
    Fault(
        "verification skips the normalised activations",
        f"{_HOST}/devices/verification.py",
        "unequal = device != golden",
        'unequal = (device != golden) & (name != "xhat")',
        f"{_TESTS}/host/devices/test_session_golden.py::test_flipped_tensors_are_told_by_name",
    ),
)
