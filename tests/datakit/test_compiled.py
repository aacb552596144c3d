"""Compiled loops: a first compilation is announced, and a cache folder keeps it for the next process."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from datakit.compile_ahead import compile_ahead
from datakit.text.compiled import Compiled, compiled
from datakit.text.shingles import jaccard

ROOT = Path(__file__).resolve().parents[2]


def test_what_no_folder_keeps_is_compiled_all_the_same_and_said(caplog) -> None:
    """A function without a file, as if neither the source's folder nor the user's cache could be written."""
    names: dict = {}
    exec("def twice(values):\n    return values * 2", names)
    twice = compiled(names["twice"])
    assert twice(np.arange(3)).tolist() == twice.python(np.arange(3)).tolist() == [0, 2, 4]
    assert "twice is compiled again in every process (set NUMBA_CACHE_DIR)" in caplog.text


def test_whatever_arrays_come_there_is_one_program() -> None:
    """Two that were compiled at the same time by two processes could be kept under each other's names."""
    numbers = np.arange(8, dtype=np.uint64)
    read_only = np.frombuffer(numbers.tobytes(), np.uint64)
    similarities = [jaccard(a, b) for a, b in [(numbers, numbers), (read_only, numbers), (numbers[::2], read_only)]]
    assert similarities == [1, 1, 0.5] and numbers.flags.writeable
    assert len(jaccard.program.signatures) == 1  # pyrefly: ignore[missing-attribute]


def test_ahead_means_all_of_them() -> None:
    compile_ahead()
    with_loops = [path for path in sorted((ROOT / "datakit").rglob("*.py")) if "\n@compiled\n" in path.read_text()]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in with_loops]
    modules = [importlib.import_module(name) for name in names]
    loops = {loop for module in modules for loop in vars(module).values() if isinstance(loop, Compiled)}
    assert {loop.__qualname__ for loop in loops if not loop.program.signatures} == set()  # pyrefly: ignore[missing-attribute]
    assert len(loops) > 10


def test_the_next_process_finds_what_one_has_compiled(tmp_path: Path) -> None:
    script = (
        "from datakit.text.shingles import jaccard; import numpy as np; jaccard(np.ones(1, np.uint64), np.ones(1, np.uint64)); "
    )
    script += "print(sum(jaccard.program.stats.cache_hits.values()))"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    hits = [subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True) for _ in range(2)]
    assert [done.stdout.strip() for done in hits] == ["0", "1"], hits[0].stderr


def test_nothing_is_compiled_or_imported_for_it_at_import() -> None:
    script = "import sys, recipes.lab, datakit.quality.rule_sets; print('numba' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.stdout.strip() == "False", done.stderr
