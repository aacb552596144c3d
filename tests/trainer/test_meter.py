"""After a step: a metrics row, a warning, or the end of the run."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_run import RUN

from trainer.meter import row_of
from trainer.spec.optimizers import SkipBadStepsConfig
from trainer.step import StepMetrics
from trainer.step_results import READ_BEHIND, steps_ahead

GUARDED = replace(RUN, skip_bad_steps=SkipBadStepsConfig())


def read(loss: float, norm: float, *, skipped: bool, in_a_row: int = 0) -> StepMetrics:
    one = np.float32(1)
    return StepMetrics(np.float32(loss), one, np.float32(norm), np.bool_(skipped), np.int32(in_a_row), one, np.ones((3, 2)))  # type: ignore


@pytest.mark.parametrize(("loss", "norm"), [(float("nan"), 1.0), (2.5, float("inf")), (2.5, float("nan"))])
def test_a_step_left_out_for_what_is_not_finite_ends_a_run_without_a_guard(loss: float, norm: float) -> None:
    with pytest.raises(FloatingPointError, match=rf"step 7 has loss {loss} and gradient norm {norm}.*set skip_bad_steps"):
        row_of(RUN, 7, read(loss, norm, skipped=True))


def test_with_a_guard_it_is_reported_and_skipped_until_there_are_too_many(caplog: pytest.LogCaptureFixture) -> None:
    assert row_of(GUARDED, 7, read(2.5, float("inf"), skipped=True, in_a_row=1))[4]
    assert "skipped step 7" in caplog.text
    with pytest.raises(FloatingPointError, match="steps in a row were skipped up to step 9"):
        row_of(GUARDED, 9, read(2.5, float("inf"), skipped=True, in_a_row=10_000))


def test_a_step_in_which_no_token_counts_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    row_of(RUN, 7, read(2.5, 1.0, skipped=False))
    assert not caplog.text
    row_of(RUN, 8, read(0.0, 0.0, skipped=False))
    assert "no token of step 8 counts in the loss" in caplog.text


@pytest.mark.parametrize(
    ("seconds", "ahead"),
    [([], 0), ([20.0], 0), ([20.0, 20.0], 0), ([2.0, 2.0], 1), ([0.5, 0.5], 4), ([0.001] * 9, READ_BEHIND)],
)
def test_a_run_goes_ahead_of_what_it_has_read_only_where_its_steps_are_known_to_be_short(
    seconds: list[float], ahead: int
) -> None:
    assert steps_ahead(seconds) == ahead
