"""Published runs as external assets: one a phase and one a mix; the warm start and the mix of a phase are its edges.

Outcome and numbers of a phase are metadata. A mix is the list of shares that the documents print. The lab has none of its
data, so no mixture can be frozen from it.
"""

from collections.abc import Iterator

import dagster as dg

from marin_assets.areas import owners
from recipes.histories.phase import History, Phase
from recipes.histories.sizes import checkpoint_bytes
from recipes.marin_history import Mix, named_mixes


def history_specs(histories: tuple[History, ...]) -> Iterator[dg.AssetSpec]:
    """Yield one asset for each phase, `histories/<run>/<phase>`, and one for each stated mix, `histories/mixes/<mix>`.

    They were made elsewhere, and are only declared here.
    """
    for name, mix in named_mixes().items():
        yield dg.AssetSpec(
            key=_mix_key(mix),
            group_name="histories",
            description=f"The mix `{name}` of the published runs, as their documents print it.",
            owners=owners("histories"),
            kinds={"json"},
            code_version="history/1",
            metadata={"mix": dg.MarkdownMetadataValue(_shares(mix))},
        )
    for history in histories:
        for phase in history.phases:
            yield _spec(history, phase)


def _mix_key(mix: Mix) -> dg.AssetKey:
    names = {shares: name for name, shares in named_mixes().items()}
    return dg.AssetKey(["histories", "mixes", names[mix]])


def _spec(history: History, phase: Phase) -> dg.AssetSpec:
    schedule = phase.spec.schedule
    facts = {
        "outcome": phase.outcome,
        "reason": phase.reason or "-",
        "chosen_here": phase.chosen or "-",
        "steps": phase.spec.num_steps,
        "tokens": phase.tokens,
        "tokens_before": history.tokens_at_start(phase),
        "training_flops": phase.flops,
        "parameters": phase.spec.model.num_parameters,
        "active_parameters": phase.spec.model.active_parameters,
        "checkpoint_bytes": checkpoint_bytes(phase.spec),
        "hardware": phase.hardware or "not stated",
        "days_at_peak": phase.least_days or "hardware not stated",
        "days_at_stated_utilisation": phase.days or "utilisation not stated",
        "measured": phase.measured or "-",
        "resumes": phase.resumes or "-",
        "peak_learning_rate": schedule.peak_learning_rate,
        "mix": dg.MarkdownMetadataValue(_mix(phase)),
        "contradictions": dg.MarkdownMetadataValue(_contradictions(history)),
    }
    shown = phase.outcome if phase.outcome == "kept" else phase.outcome.upper()
    what = f"{shown}: {phase.reason}" if phase.reason else shown
    before = [] if phase.start is None else [dg.AssetKey(["histories", history.name, phase.start.phase])]
    return dg.AssetSpec(
        key=["histories", history.name, phase.name],
        deps=[*before, *(_mix_key(mix) for mix in (phase.mix_before, phase.mix) if mix is not None)],
        group_name="histories",
        description=f"Phase `{phase.name}` of {history.name}, {phase.tokens / 1e12:.3f} T tokens; {what}.",
        owners=owners("histories"),
        kinds={"jax"},
        code_version="history/1",
        metadata=facts,
    )


def _mix(phase: Phase) -> str:
    if phase.mix is None:
        return "not stated"
    if phase.mix_before is None:
        return _shares(phase.mix)
    parts = phase.weights
    first, last = _shares(parts[0].weights), _shares(parts[-1].weights)
    return f"from one mix to another in {len(parts)} parts; the first:\n\n{first}\n\nthe last:\n\n{last}"


def _shares(mix: Mix) -> str:
    rows = [f"| {name} | {share:.2f} |" for name, share in sorted(mix, key=lambda part: -part[1])]
    return "\n".join(["| dataset | % |", "|---|---|", *rows])


def _contradictions(history: History) -> str:
    rows = [f"| {each.what} | {each.one} | {each.other} | {each.taken} |" for each in history.contradictions]
    return "\n".join(["| what | one place | another | taken |", "|---|---|---|---|", *rows]) if rows else "none found"
