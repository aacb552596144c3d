"""The switch to permissive licences: what remains is built; what cannot remain is refused early."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lineage.artifact.store import Store
from lineage.build.plan import ancestors_first, build
from lineage.order.mixture import MIXTURE_FILE, StepPhase
from recipes import data
from recipes.lab import canary_line, default_line, permissive_line
from recipes.lines import Line, declared_weights, permissive
from recipes.runs import smoke
from trainer.spec.config import WarmStart

PSF, OTHERS = "python_topics", "package_docs"


def small_line(phases: tuple[StepPhase, ...] = ()) -> Line:
    """Pages of Python's own help, which are permissive, and descriptions of whatever is installed, which are not."""
    line = canary_line("cpu", None)
    return replace(line, sources=(PSF, OTHERS), vocab_size=512, mixture_block=8, run=smoke(), run_key=(), phases=phases)


def test_a_mixture_is_built_of_the_permissive_sources_alone(tmp_path: Path) -> None:
    phases = (StepPhase(0, ((PSF, 1.0), (OTHERS, 9.0))), StepPhase(100, ((PSF, 2.0),)))
    node = data.mixture(permissive(small_line(phases)))
    store = Store(str(tmp_path))
    made = [build(store, each).artifact for each in ancestors_first([node])][-1]
    mixture = json.loads(made.files(MIXTURE_FILE)[0].read_text())
    assert [component["name"] for component in mixture["components"]] == [PSF]
    assert [phase["weights"] for phase in mixture["phases"]] == [{PSF: 1.0}, {PSF: 2.0}]
    assert not [each.name for each in ancestors_first([node]) if OTHERS in each.name], "nothing of the others is even fetched"


def test_a_phase_that_reads_none_of_them_is_refused_when_it_is_declared() -> None:
    phases = (StepPhase(0, ((PSF, 1.0), (OTHERS, 1.0))), StepPhase(100, ((OTHERS, 1.0),)))
    with pytest.raises(ValueError, match=rf"phase at step 100 reads {OTHERS} alone.* these are: {PSF}"):
        permissive(small_line(phases))
    with pytest.raises(ValueError, match=r"phase at step 0 weighs 'kjv', which is none of the line's sources"):
        small_line((StepPhase(0, (("kjv", 1.0),)),))


def test_the_declared_line_has_names_of_its_own_and_every_source_kept_or_left_out() -> None:
    line, chosen = default_line(), permissive_line()
    assert {"wiki", "package_docs"} <= {name for name, _ in chosen.left_out}
    assert sorted([*chosen.sources, *(name for name, _ in chosen.left_out)]) == sorted(line.sources)
    assert {chosen.scope, chosen.corpus, chosen.cache, chosen.mixture, chosen.tokenizer, chosen.run.name}.isdisjoint(
        {line.scope, line.corpus, line.cache, line.mixture, line.tokenizer, line.run.name}
    )


def test_so_is_the_line_that_a_run_starts_from() -> None:
    first = default_line()
    warm = replace(first, run=replace(first.run, name="warm", start=WarmStart()), after=(first, first.run.num_steps))
    after = permissive(warm).after
    assert after is not None
    assert after[0] == permissive_line()


def test_a_source_without_a_weight_is_named_before_anything_is_fetched() -> None:
    """Nobody has counted the tokens of some sources of the hub: their weight is 0."""
    line = replace(small_line(), sources=(PSF, "dolmino_math_gsm8k", "tulu_3"))
    with pytest.raises(ValueError, match="mixture_weight of dolmino_math_gsm8k, tulu_3 is 0"):
        data.mixture(line)
    assert declared_weights(default_line()).start_step == 0
    told = replace(line, phases=(StepPhase(0, ((PSF, 1.0), ("dolmino_math_gsm8k", 1.0), ("tulu_3", 0.1))),))
    assert len(data.mixture(told).inputs["caches"]) == 3
