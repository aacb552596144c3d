"""A progress bar on a terminal, log lines elsewhere."""

import io
import logging
import time

import pytest
from rich.console import Console

from trainer.progress import Bar, LogLines, StepReport, shown


def report(step: int) -> StepReport:
    return StepReport(step, 20, 3.25, 1e-3, 12_345.6, 7.0, 0.012, 0.41)


def test_a_terminal_has_a_bar_below_what_is_said() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=160)
    with shown(console, is_first=True) as show:
        assert isinstance(show, Bar)
        for step in (5, 20):
            show.step(report(step))
            show.progress.refresh()
    text = screen.getvalue()
    assert "5/20" in text and "20/20" in text
    assert "loss 3.2500" in text and "12,346 tokens/s" in text and "MFU 41.0 %" in text and "1.2 % waiting for data" in text


@pytest.mark.parametrize(("is_terminal", "is_first"), [(False, True), (True, False)])
def test_a_file_and_every_further_process_have_lines(
    is_terminal: bool, is_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    console = Console(file=io.StringIO(), force_terminal=is_terminal)
    with caplog.at_level(logging.INFO, "trainer"), shown(console, is_first=is_first) as show:
        assert isinstance(show, LogLines)
        show.step(report(1))
        show.spoken = time.perf_counter() + 3600  # the next comes soon after the first, however slow this machine is
        show.step(report(2))
        show.step(report(20))  # the last step is always reported
        show.spoken = time.perf_counter() - 60
        show.step(report(7))
    assert [record.message.split()[1].split("/")[0] for record in caplog.records] == ["1", "20", "7"]
    assert "7 s left" in caplog.text
