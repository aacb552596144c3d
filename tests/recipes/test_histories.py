"""Histories as graphs of run specs: published numbers, warm starts, dead branches, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from lineage.config import from_jsonable, to_jsonable
from marin_assets.histories import history_specs
from recipes.histories.declared import declared_histories
from recipes.histories.marin_8b import marin_8b
from recipes.histories.marin_32b import QWEN3, marin_32b
from recipes.histories.marin_moe import june_model, marin_1e22, marin_1e23
from recipes.histories.phase import From, History
from recipes.histories.picture import draw
from recipes.histories.sizes import checkpoint_bytes
from recipes.marin_history import interpolated
from recipes.planned_runs import june
from trainer.footprint import state_bytes
from trainer.learning_rate import learning_rates
from trainer.spec.config import RunSpec
from trainer.spec.moe import MoeConfig


@pytest.mark.parametrize("history", declared_histories(), ids=lambda history: history.name)
def test_every_stated_number_is_the_computed_one_at_its_printed_precision(history: History) -> None:
    wrong = [(stated.what, stated.printed, stated.computed) for stated in history.stated if not stated.agrees]
    assert not wrong and len(history.stated) >= 3


@pytest.mark.parametrize("history", declared_histories(), ids=lambda history: history.name)
def test_every_phase_is_a_spec_that_the_trainer_reads_back(history: History) -> None:
    for phase in history.phases:
        assert from_jsonable(RunSpec, to_jsonable(phase.spec)) == phase.spec
        assert phase.flops > 0


def test_the_published_lines_leave_out_what_was_abandoned() -> None:
    assert [phase.name for phase in marin_32b().line_to("mantis-stackv2")] == [
        "1a", "1b", "1c", "1d", "3", "mantis", "mantis-stackv2",
    ]  # fmt: skip
    assert [phase.name for phase in marin_8b().line_to("starling")] == [
        "kestrel-1", "kestrel-2", "ocelot", "jellyfish", "phoenix-1", "phoenix-2", "starling",
    ]  # fmt: skip
    dead = {phase.name for history in declared_histories() for phase in history.phases if phase.outcome == "abandoned"}
    assert dead == {"necromancy", "nadamw", "muon", "bison", "raccoon", "spoonbill", "ep8-ragged"}


def test_the_switch_to_qk_norm_adds_two_norms_and_nothing_else() -> None:
    phase = marin_32b().by_name["3"]
    assert phase.spec.start is not None and phase.spec.start.new_parameters == ("k_norm", "q_norm")
    before = marin_32b().by_name["1d"].spec.model
    assert QWEN3.num_parameters - before.num_parameters == 64 * 2 * 128


def test_phoenix_goes_over_linearly_in_mix_and_rate() -> None:
    history = marin_8b()
    phase, before = history.by_name["phoenix-1"], history.by_name["jellyfish"]
    parts = phase.weights
    assert len(parts) == 20 and parts[1].start_step == 100
    first, last = dict(parts[0].weights), dict(parts[-1].weights)
    assert first["nemotron_cc/medium"] < 1 < 29 < last["nemotron_cc/medium"]
    assert sum(first.values()) == pytest.approx(100) == pytest.approx(sum(last.values()))
    ended = learning_rates(before.spec.schedule, before.spec.num_steps)[-1]
    rates = learning_rates(phase.spec.schedule, phase.spec.num_steps)
    assert (ended, rates[0], rates[999], rates[-1]) == pytest.approx((1.7e-4, 1.7e-4, 9.35e-4, 1.7e-3), rel=5e-3)
    with pytest.raises(ValueError, match="without a mix to go over into"):
        replace(phase, mix=None)
    with pytest.raises(ValueError, match="in 20 parts are no whole steps"):
        interpolated((("a", 1.0),), (("b", 1.0),), 50)


def test_phases_have_their_warm_start_and_their_mixes_as_edges() -> None:
    edges = {spec.key.to_user_string(): {dep.asset_key.to_user_string() for dep in spec.deps} for spec in
             history_specs(declared_histories())}  # fmt: skip
    assert edges["histories/marin_8b/phoenix-1"] == {
        "histories/marin_8b/jellyfish", "histories/mixes/jellyfish", "histories/mixes/nemotron_pt",
    }  # fmt: skip
    assert edges["histories/marin_32b/mantis"] == {"histories/marin_32b/3", "histories/mixes/mantis"}
    stated = {f"histories/{each.name}/{phase.name}" for each in declared_histories() for phase in each.phases if phase.mix}
    assert stated == {key for key, deps in edges.items() if any(dep.startswith("histories/mixes/") for dep in deps)}


@pytest.mark.parametrize("history", declared_histories(), ids=lambda history: history.name)
def test_a_warm_start_changes_no_more_of_the_model_than_it_names(history: History) -> None:
    for phase in history.phases:
        if phase.start is None or phase.spec.start is None:
            continue
        before, after = history.by_name[phase.start.phase].spec.model, phase.spec.model
        differs = {name for name in after.NO_ARRAY_FIELDS if getattr(before, name) != getattr(after, name)}
        assert differs == set(phase.spec.start.changed_fields), phase.name
        grown = after.num_parameters - before.num_parameters
        assert bool(grown) == bool(phase.spec.start.new_parameters), phase.name


@pytest.mark.parametrize("history", declared_histories(), ids=lambda history: history.name)
def test_checkpoints_have_the_size_of_the_trainer_s_own_state(history: History) -> None:
    for phase in {phase.spec.optimizer: phase for phase in history.phases}.values():
        assert checkpoint_bytes(phase.spec) == pytest.approx(state_bytes(phase.spec), rel=1e-3), phase.name


def test_the_rate_runs_on_where_one_line_is_split_over_phases() -> None:
    for history, before, after in ((marin_32b(), "mantis", "mantis-stackv2"), (marin_1e22(), "train", "v4")):
        ended, begun = history.by_name[before].spec, history.by_name[after].spec
        last = ended.num_steps - 1
        steps = [float(learning_rates(ended.schedule, ended.num_steps)[step]) for step in (last - 1, last)]
        first = float(learning_rates(begun.schedule, begun.num_steps)[0])
        assert first - steps[1] == pytest.approx(steps[1] - steps[0], rel=0.02)


def test_the_copies_of_1e22_differ_in_capacity_alone() -> None:
    copies = [marin_1e22().by_name[name] for name in ("v2", "v3", "v4")]
    assert [copy.spec.model.experts.capacity_factor for copy in copies if isinstance(copy.spec.model, MoeConfig)] == [1, 2, 4]
    assert len({copy.spec.model.num_parameters for copy in copies}) == len({copy.start for copy in copies}) == 1


def test_published_hours_are_computed_from_the_printed_share_of_peak() -> None:
    first = marin_1e23().by_name["ep8-ragged"]
    assert first.days is not None and first.least_days is not None
    shorter = first.flops / (7.66e20 / 0.17)  # its gates and windows are not in the printed count
    assert first.days * 24 == pytest.approx(8.9 * shorter / 0.17, rel=0.01)
    assert first.least_days == pytest.approx(2 * 0.17 * first.days), "a v4-512 has half the chips that the table counts"


def test_june_s_trial_is_the_planned_run_but_for_its_layers() -> None:
    planned, declared = june().spec, june_model().end.spec
    model = replace(planned.model, num_layers=declared.model.num_layers)
    assert declared == replace(planned, name=declared.name, model=model)


def test_both_numbers_of_a_contradiction_are_kept() -> None:
    kept = {(history.name, each.what) for history in declared_histories() for each in history.contradictions}
    assert {("marin_1e22", "macro loss of v4"), ("marin_1e23", "tokens"), ("marin_8b", "Starling's length")} <= kept


def test_a_history_ends_once() -> None:
    history = marin_1e23()
    with pytest.raises(ValueError, match=r"are \[\]; there must be one"):
        _ = replace(history, phases=history.phases[:1]).end


def test_a_phase_that_starts_nowhere_is_refused() -> None:
    history = marin_32b()
    last = history.phases[-1]
    with pytest.raises(ValueError, match="starts from step 13,999 of mantis, which keeps 14,000"):
        replace(history, phases=(*history.phases[:-1], replace(last, start=From("mantis", 13_999))))
    with pytest.raises(ValueError, match="starts from phase-9, none before it"):
        replace(history, phases=(*history.phases[:-1], replace(last, start=From("phase-9", 1))))
    with pytest.raises(ValueError, match="sum to 98"):
        replace(last, mix=(("wiki", 98.0),))
    with pytest.raises(ValueError, match="an abandoned phase has one"):
        replace(last, outcome="abandoned")


@pytest.mark.parametrize("history", declared_histories(), ids=lambda history: history.name)
def test_a_history_is_drawn(history: History, tmp_path: Path) -> None:
    draw(history, tmp_path / "history.png")
    assert (tmp_path / "history.png").read_bytes()[:4] == b"\x89PNG"
