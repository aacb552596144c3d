"""The 32B history in miniature: specs by division (fast), and a whole replay through the trainer (slow)."""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from rich.console import Console

from lineage.jobs.job import LaunchRecord, LaunchRequest
from recipes.histories.marin_32b import PEAK
from recipes.marin_history import MANTIS
from scenarios.evidence import Teller, failures
from scenarios.histories import play
from scenarios.histories_page import write_histories_page
from scenarios.history_specs import (
    BISON,
    ENDS,
    MANTIS_END,
    Miniature,
    lines,
    mix_of,
    replayed,
    small_spec,
    small_step,
    thousandth,
    weights,
)
from scenarios.nodes import BUNDLE
from trainer.__main__ import main as trainer
from trainer.learning_rate import learning_rates
from trainer.spec.llama import LlamaConfig


def test_a_thousandth_has_the_declared_steps_and_warm_starts() -> None:
    history, size = replayed(), thousandth()
    steps = {phase.name: small_spec(history, phase, size).num_steps for phase in lines(history)}
    assert steps == {"1a": 56, "1b": 16, "1c": 2, "1d": 6, "3": 80, "bison": 32, "mantis": 14, "mantis-stackv2": 18}
    for phase in lines(history):
        spec = small_spec(history, phase, size)
        assert (spec.start, spec.optimizer, spec.ema) == (phase.spec.start, phase.spec.optimizer, phase.spec.ema)
        if phase.start is not None:
            before = small_spec(history, history.by_name[phase.start.phase], size)
            assert (
                small_step(history, phase, size)
                == small_step(history, history.by_name[phase.start.phase], size) + before.num_steps
            )
    assert [small_spec(history, history.by_name[name], size).model.num_parameters for name in ("1d", "3")] == [
        size.model.num_parameters,
        size.model.num_parameters + size.model.num_layers * 2 * size.model.head_size,
    ]


def test_rates_of_a_thousandth_are_the_declared_shares_of_the_peak() -> None:
    history, size = replayed(), thousandth()
    for name in ("1a", "bison", "mantis-stackv2"):
        phase = history.by_name[name]
        spec, declared = small_spec(history, phase, size), phase.spec
        small = float(learning_rates(spec.schedule, spec.num_steps)[spec.num_steps // 2])
        large = float(learning_rates(declared.schedule, declared.num_steps)[declared.num_steps // 2])
        assert small / size.peak_learning_rate == pytest.approx(large / PEAK, rel=1e-5), name


def test_the_mixes_keep_their_shares_and_the_bundle_is_in_cooldowns_alone() -> None:
    history = replayed()
    shares = {phase.name: weights(mix_of(phase), thousandth()) for phase in lines(history)}
    assert {name for name, parts in shares.items() if BUNDLE in parts} == {BISON, "mantis", MANTIS_END}
    assert shares[BISON][BUNDLE] == 1.08
    assert sum(shares[MANTIS_END].values()) == pytest.approx(sum(share for _, share in MANTIS))


@pytest.fixture(scope="module")
def quick_compilation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    cache = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_compilation_cache_dir", cache)


def launch(job: LaunchRequest) -> LaunchRecord:
    """A trainer where JAX is loaded already; `make histories` starts a process for each."""
    assert job.module == "trainer"
    trainer([str(job.job_path)])
    return LaunchRecord("this process", "cpu", ())


def tiny() -> Miniature:
    model = LlamaConfig(512, hidden_dim=32, intermediate_dim=64, num_layers=2, num_heads=2, num_kv_heads=1, max_seq_len=128)
    return Miniature(model, 8, 128, divisor=2_000, peak_learning_rate=4e-3, web="python_topics", docs="python_topics")


@pytest.mark.slow
def test_a_replay_holds_shows_the_leak_in_one_branch_and_makes_nothing_twice(quick_compilation: None, tmp_path: Path) -> None:
    teller = Teller(Console(quiet=True), [])
    found = play(tmp_path / "replay", tiny(), launch, teller)
    assert not failures(found.evidence)
    assert found.reads[BISON].height > 0 and found.reads[MANTIS_END].height == 0
    assert found.reads[BISON]["step"].is_between(80, 95).all(), "only the cooldown has read items"
    page = write_histories_page(tmp_path / "page.html", found).read_text()
    assert 'src="http' not in page and page.count("data:image/png;base64,") == 2
    assert all(document in page for document in found.reads[BISON]["document"])

    def refuse(job: LaunchRequest) -> LaunchRecord:
        raise AssertionError(f"{job.name} was trained already")

    again = play(tmp_path / "replay", tiny(), refuse, Teller(Console(quiet=True), []))
    assert [run.losses for run in again.runs] == [run.losses for run in found.runs]
    assert {end: again.reads[end].equals(found.reads[end]) for end in ENDS} == dict.fromkeys(ENDS, True)
