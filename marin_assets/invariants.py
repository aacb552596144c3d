"""Checks of models and audits (checks of data belong to the data engine: `datakit.invariants`)."""

import json
import math
from typing import Literal

import polars as pl

from evals.audit.page import VERDICTS
from lineage.artifact.store import Artifact
from trainer.router_table import FILE, balance_of, unbalanced

LOSS_SHARE_OF_GUESSING = 0.9
"""A run that ends above 0.9 ln(V) has learned almost nothing (ln 8192 = 9.01; the unigram entropy of our text is near
7).
"""


def loss_violations(checkpoint: Artifact) -> list[str]:
    """Check that the loss of every logged step is finite, and that the last ones are below a share of ln(vocabulary)."""
    facts = checkpoint.manifest.extra["checkpoint"]
    losses = pl.read_parquet(checkpoint.files("metrics.parquet")[0])["loss_nats"]
    bound = LOSS_SHARE_OF_GUESSING * math.log(facts["vocab_size"])
    violations = []
    if not losses.is_finite().all():
        violations.append(f"{losses.len() - int(losses.is_finite().sum())} of {losses.len()} logged losses are not finite")
    if not facts["loss_nats"] < bound:
        violations.append(f"final loss {facts['loss_nats']:.3f} nats is not below {bound:.3f}")
    return violations


def score_violations(result: Artifact) -> list[str]:
    """Check that every score is finite and inside its own interval."""
    return [
        f"{score['task']}/{score['metric']} = {score['value']} in [{score['low']}, {score['high']}]"
        for score in result.manifest.extra["scores"]
        if not score["low"] <= score["value"] <= score["high"]
        or not all(math.isfinite(score[name]) for name in ("value", "low", "high"))
    ]


def audit_violations(audit: Artifact) -> list[str]:
    """Check that the audit has a verdict and a row for every item of every suite that it was given."""
    violations = []
    report = json.loads(audit.files("audit.json")[0].read_text())
    if report.get("verdict") not in VERDICTS:
        violations.append(f"verdict is {report.get('verdict')!r}")
    rows = pl.read_parquet(audit.files("items.parquet")[0]).height
    suites = [parent for parent in audit.store.parents(audit) if parent.spec.stage == "evals.suite"]
    items = sum(pl.read_parquet(suite.files("items.parquet")[0], columns=["item_id"]).height for suite in suites)
    if rows != items:
        violations.append(f"{rows} rows for {items} items of the suites")
    return violations


def judge_contamination(audit: Artifact) -> tuple[Literal["passed", "warn", "error"], str]:
    """Error if training has read an item; warning if the mixture holds an unread item, a part of one or fragments."""
    facts = audit.manifest.extra["audit"]
    seen, left = facts["counts"]["seen_in_training"], facts["counts"]["matched_after"]
    why = f"{VERDICTS[facts['verdict']]} Items left in the mixture: {left}, seen up to step {facts['step']:,}: {seen}."
    if facts["verdict_at_step"] == "contaminated":
        return "error", why
    return ("passed" if facts["verdict"] == "clean" else "warn"), why


def special_token_violations(canary: Artifact) -> list[str]:
    """Return what is wrong with an export's special tokens (`evals.export_canary`)."""
    return list(canary.manifest.extra["export_canary"]["special_tokens_wrong"])


def judge_termination(canary: Artifact) -> tuple[Literal["passed", "warn", "error"], str]:
    """Warn if no sample ended: a tiny model may not have learned to end, a large one is broken."""
    facts = canary.manifest.extra["export_canary"]
    low, high = facts["ended_interval"]
    why = (
        f"{facts['ended']} of {facts['samples']} texts came to an end by themselves within {facts['max_new_tokens']} tokens "
        f"(95 %: {low:.2f} to {high:.2f})."
    )
    return ("passed" if facts["ended"] else "warn"), why


def router_judgement(artifact: Artifact) -> tuple[Literal["passed", "warn", "error"], str]:
    """Return whether the experts of a run share its last tokens (`trainer.router_table`)."""
    per_token = artifact.spec.config["run"]["model"]["router"]["per_token"]
    bad = unbalanced(balance_of(pl.read_parquet(artifact.file(FILE)), per_token))
    return ("warn", "; ".join(bad[:5])) if bad else ("passed", "every expert has its share of the last tokens")


LEAST_LACK_OF_FIT = 0.01
"""A form that repeats reject more clearly than this has almost no weight in a forecast, so its convergence does not matter."""


def forms_converged(fit: Artifact) -> list[str]:
    """Return the forms that weigh in a forecast and whose fit has not converged."""
    forms = fit.manifest.extra["fit"]["forms"]
    return [form["name"] for form in forms if not form["converged"] and form["lack_of_fit_p"] >= LEAST_LACK_OF_FIT]


def forms_agree(fit: Artifact) -> tuple[Literal["passed", "warn", "error"], str]:
    """Warn if forms that fit differ by more than half the width of the 90 % interval: then the choice of form decides."""
    ahead = fit.manifest.extra["fit"]["ahead"]
    apart = [each for each in ahead if 2 * each["disagreement"] > each["high"] - each["low"]]
    if apart:
        return "warn", "; ".join(f"{each['disagreement']:.4f} apart at {each['budget']:.3g} FLOPs" for each in apart)
    return "passed", f"the forms agree at {len(ahead)} larger budgets"
