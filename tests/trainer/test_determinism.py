"""XLA is set to deterministic before it reads its flags, and the run record says so."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from tiny_run import ROOT, RUN, job_of

from trainer.determinism import FLAG, OVERLAP, ask, note
from trainer.programs import keep_programs
from trainer.train import train


@pytest.mark.parametrize(
    ("before", "after", "repeats"),
    [
        (None, f"{FLAG}=true", True),
        ("--xla_dump_to=/x", f"--xla_dump_to=/x {FLAG}=true", True),
        (f"{FLAG}=false", f"{FLAG}=false", False),
        (f"{FLAG}", f"{FLAG}", True),
        (f"{FLAG}=true {FLAG}=0", f"{FLAG}=true {FLAG}=0", False),
    ],
)
def test_a_gpu_is_asked_unless_somebody_said_otherwise(before: str | None, after: str, repeats: bool) -> None:
    environment = {} if before is None else {"XLA_FLAGS": before}
    ask(environment)
    assert environment == {"XLA_FLAGS": f"{after} {OVERLAP}=true"}
    ask(environment)
    assert environment == {"XLA_FLAGS": f"{after} {OVERLAP}=true"}
    assert note("gpu", environment).startswith("repeats" if repeats else "does not repeat to the bit: XLA_FLAGS lacks")


def test_a_gpu_that_nobody_asked_is_said_not_to_repeat_and_others_do() -> None:
    assert note("gpu", {}).startswith("does not repeat") and FLAG in note("gpu", {})
    assert note("cpu", {}) == "repeats to the bit on one mesh (cpu)"


def test_the_record_of_a_run_says_it(tmp_path) -> None:
    made = train(job_of(tmp_path, RUN, step=1))
    assert "repeats to the bit on one mesh (cpu)" in made.manifest.extra["checkpoint"]["compute"]["notes"]


def test_what_the_trainer_asks_is_read_by_xla() -> None:
    """Its module imports jax first; XLA reads its flags at the first device, which this counts by another flag."""
    script = (
        "import os, trainer.__main__ as main, jax; main.ask(os.environ);"
        "os.environ['XLA_FLAGS'] += ' --xla_force_host_platform_device_count=3'; print(jax.device_count())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "3", ran.stderr


def test_programs_of_accelerators_are_kept(tmp_path: Path) -> None:
    """A folder that the user names has priority. Programs of a CPU are not kept for one job."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_compilation_cache_max_size")
    before = {name: getattr(jax.config, name) for name in names}
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        kept = keep_programs(tmp_path, "cpu", many=True)
        assert kept is not None and kept.parent == tmp_path, "apart for each kind of CPU"
        assert jax.config.jax_compilation_cache_dir == str(kept)
        assert keep_programs(tmp_path, "cpu", many=True) == kept, "the next job of the process"
        jax.config.update("jax_compilation_cache_dir", None)
        assert keep_programs(tmp_path, "cpu", many=False) is None
        assert jax.config.jax_compilation_cache_dir is None
        assert keep_programs(tmp_path, "gpu", many=False) == tmp_path / "gpu"
        assert keep_programs(tmp_path / "other", "gpu", many=True) is None, "the user's, as far as this call knows"
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "gpu")
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
