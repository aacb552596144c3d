"""Published runs as external assets: one a phase, its warm start as an edge, outcome and numbers as metadata."""

from collections.abc import Iterator

import dagster as dg

from marin_assets.areas import owners
from recipes.histories.phase import History, Phase


def history_specs(histories: tuple[History, ...]) -> Iterator[dg.AssetSpec]:
    """Yield one asset for each phase, `histories/<run>/<phase>`. They were made elsewhere, and are only declared here."""
    for history in histories:
        for phase in history.phases:
            yield _spec(history, phase)


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
        "peak_learning_rate": schedule.peak_learning_rate,
        "mix": dg.MarkdownMetadataValue(_mix(phase)),
    }
    what = {"kept": "kept", "published": "PUBLISHED", "abandoned": f"ABANDONED: {phase.reason}"}[phase.outcome]
    before = [] if phase.start is None else [dg.AssetKey(["histories", history.name, phase.start.phase])]
    return dg.AssetSpec(
        key=["histories", history.name, phase.name],
        deps=before,
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
    rows = [f"| {name} | {share:.2f} |" for name, share in sorted(phase.mix, key=lambda part: -part[1])]
    return "\n".join(["| dataset | % |", "|---|---|", *rows])
