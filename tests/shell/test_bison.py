"""The Bison incident at small scale: real stages, store, gate, trainer, audit and exposure."""

import io
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

from evals.__main__ import main as evaluator
from evals.tasks.scorer import score_continuations
from lineage.artifact.store import Store
from lineage.build.nodes import resolve
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import LaunchRecord, LaunchRequest
from lineage.trust.gate import inspect
from scenarios import nodes
from scenarios.__main__ import conclude
from scenarios.bison import LINEAGE_PAGE, Replay, replay
from scenarios.bison_page import write_page
from scenarios.bundle import TEST_FILE, lm_eval_answer, olmes_answer, prompt
from scenarios.evidence import Evidence, Teller, failures
from scenarios.incident import HERE, RESUMED, SIMULATED
from scenarios.judgement import audit_bison
from scenarios.phase_shift import shares, variance_ratio
from scenarios.problems import problems
from scenarios.scale import small
from scenarios.surprisal import FORMS, PARTS
from serving.tokenization import open_tokenizer
from trainer.__main__ import main as trainer
from trainer.scoring import load_scorer
from trainer.spec.stage import CHECKPOINT

pytestmark = pytest.mark.slow


def launch(job: LaunchRequest) -> LaunchRecord:
    """The resume that is refused is a process, as every job is outside of tests; what trains does so where JAX is loaded."""
    if job.log_path.name == RESUMED:
        return run_subprocess(job)
    {"trainer": trainer, "evals": evaluator}[job.module]([str(job.job_path)])
    return LaunchRecord("this process", "cpu", ())


@pytest.fixture(scope="module")
def quick_compilation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """As in tests/trainer; and the step that four runs share is compiled once."""
    cache = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_compilation_cache_dir", cache)


@pytest.fixture(scope="module")
def played(quick_compilation: None, tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """One replay for every test of this file."""
    folder = tmp_path_factory.mktemp("bison") / "replay"
    store = Store(str(folder / "store"))
    return replay(folder, store, small(), "vendored", launch, Console(file=io.StringIO()))


def test_every_expectation_holds(played: Replay) -> None:
    assert not failures(played.evidence)
    assert sum(each.holds is not None for each in played.evidence) >= 18
    assert sum("items less that of control items" in each.claim for each in played.evidence) == len(FORMS)


def test_the_simulation_says_that_it_is_one(played: Replay) -> None:
    simulated = [each for each in played.evidence if each.act == SIMULATED]
    assert simulated and all(each.claim.startswith("SIMULATION: ") for each in simulated)


def test_the_refusals_say_why_and_what_mends_it(played: Replay) -> None:
    refusals = [each.details for each in played.evidence if each.act == HERE]
    stale, _, _, mixture, _, resumed = refusals
    assert "stale: datakit/raw[dolmino_math]" in stale and "`./marin materialize datakit/raw --partition dolmino_math`" in stale
    assert "stale: mixture/bison" in mixture and "`./marin materialize mixture/bison`" in mixture
    assert f"quarantine: {TEST_FILE} holds GSM8K test items" in resumed and "--lift" in resumed


def test_after_the_quarantine_the_gate_holds_bison_back_and_not_mantis(played: Replay) -> None:
    world = played.world
    bison, mantis = (resolve(world.store, node) for node in (nodes.bison(world.before), nodes.mantis(world.after)))
    assert CHECKPOINT.gate is not None
    [finding] = inspect(world.store, [bison.ref("checkpoint")], CHECKPOINT.gate)
    assert (finding.problem, finding.artifact) == ("quarantined", "datakit/raw[dolmino_math]")
    assert not inspect(world.store, [mantis.ref("checkpoint")], CHECKPOINT.gate)


def test_the_audit_names_the_leaked_items_alone(played: Replay) -> None:
    world = played.world
    assert set(played.reads["item_id"]) == {item.item_id for item in world.leaked}
    assert set(played.reads["leg"]) == {1}, "the base has read none of them"
    assert played.reads["step"].max() < world.scale.cooldown_steps


def test_surprisal_is_what_the_evaluations_would_say(played: Replay) -> None:
    world = played.world
    bison = resolve(world.store, nodes.bison(world.before))
    tokenizer, start = open_tokenizer(resolve(world.store, nodes.tokenizer(world.before)), world.scale.vocab_size)
    items = [*world.leaked, *world.control]
    for form, render in FORMS.items():
        pairs = [(prompt(item.question), render(item.solution, item.answer)) for item in items]
        scored = score_continuations(load_scorer(bison), tokenizer, pairs, start)
        expected = np.array([each.nats for each in scored if each is not None]) / np.log(2)
        np.testing.assert_allclose(played.measured["bison", form].bits, expected, rtol=1e-6)
    for part in PARTS:
        assert played.measured["bison", "OLMES"].part_tokens[part].sum() == 0
        assert played.measured["bison", "lm-eval"].part_tokens[part].min() > 0


def test_the_page_is_one_file_with_both_histories(played: Replay) -> None:
    page = write_page(played).read_text()
    assert 'src="http' not in page and page.count("data:image/png;base64,") == 3
    assert all(name in page for name in ("runs/bison/checkpoint", "runs/mantis/checkpoint", "SIMULATION"))
    assert "runs/base/checkpoint" in (played.world.folder / LINEAGE_PAGE).read_text()


def test_a_failing_expectation_ends_with_a_status_of_one(played: Replay) -> None:
    console = Console(file=io.StringIO())
    assert conclude(played.evidence, Path("page"), console) == 0
    assert conclude([*played.evidence, Evidence("act", "a claim", "nothing", False)], Path("page"), console) == 1


def test_an_audit_that_finds_nothing_fails_the_replay(played: Replay) -> None:
    world = played.world
    clean = replace(world, before=world.after, teller=Teller(Console(file=io.StringIO()), []))
    assert audit_bison(clean, nodes.mantis(world.after)).is_empty()
    assert any("12 leaked items named" in each.details for each in failures(clean.teller.kept))


def test_a_second_replay_into_the_same_folder_is_refused(played: Replay) -> None:
    world = played.world
    with pytest.raises(FileExistsError, match="has a replay already"):
        replay(world.folder, world.store, world.scale, "vendored", launch, Console(file=io.StringIO()))


def test_both_notations_of_an_answer() -> None:
    solution = "She has 16 - 7 = <<16-7=9>>9.\nThat is 9 * 2 = $<<9*2=18>>18 in all.\n#### 18"
    assert olmes_answer(solution, "18") == " She has 16 - 7 = 9. That is 9 * 2 = $18 in all. So the answer is 18."
    assert lm_eval_answer(solution, "18") == f" {solution}"


def test_the_clean_problems_are_right() -> None:
    for problem in problems(60, 3):
        steps = [step.split(">>")[0].split("=") for step in problem.solution.split("<<")[1:]]
        assert steps and all(eval(left) == int(right) for left, right in steps)  # our own arithmetic, digits and + - * ( )
        assert int(steps[-1][1]) == problem.answer


def test_the_variance_ratio_is_one_on_average_over_all_orders() -> None:
    counts, window = [2, 3, 1], 2
    orders = [np.array(order) for order in itertools.permutations(range(6))]
    ratios = [variance_ratio(shares(order, counts, window), counts, window) for order in orders]
    np.testing.assert_allclose(np.mean(ratios), 1, rtol=1e-12)
