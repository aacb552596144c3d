"""A hanging process, as in a collective with a stuck peer, ends itself in time and is retried."""

from pathlib import Path

import pytest
from tiny_run import RUN, ended, job_of, log_of, started

from resources.failures import Evidence, classify_pod


@pytest.mark.slow
def test_a_process_that_hangs_ends_and_says_where(tmp_path: Path) -> None:
    root = tmp_path / "run"
    job_of(root, RUN)
    variables = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "MARIN_FAULTS": "hang@20", "MARIN_STALL_SECONDS": "60"}
    assert ended(started(root, variables)) == [1]
    log = log_of(root)
    assert "Timeout (0:01:00)!" in log
    assert 'trainer/faults.py", line' in log, "the stack of the thread that hangs"
    verdict = classify_pod(Evidence(exit_code=1, reason="Error", log=log))
    assert (verdict.kind, verdict.cause) == ("transient", "stalled")
