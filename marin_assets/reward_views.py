"""What the UI shows of runs on rewards: numbers by iteration that plot by themselves, curves, and sampled rollouts."""

from pathlib import Path

import dagster as dg
import polars as pl

from lineage.artifact.store import Artifact
from lineage.figures import new_figure
from marin_assets.values import picture, records_table
from post_training.checks import facts_of
from post_training.stage import ROLLOUTS_FILE

CURVES = ("reward", "right", "kl", "length", "entropy", "dead_groups")
SHOWN_ROLLOUTS = 8
DPI = 80


def environment(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return how many prompts each split has, and the verifier."""
    facts = artifact.manifest.extra["environment"]
    return {
        "train_prompts": dg.MetadataValue.int(facts["train"]),
        "held_out_prompts": dg.MetadataValue.int(facts["held_out"]),
        "verifier": dg.MetadataValue.text(f"{facts['stage']} version {facts['verifier']}"),
    }


def checkpoint(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return step, loss, and how many iterations of rollouts the checkpoint learned from."""
    facts = artifact.manifest.extra["checkpoint"]
    return {
        "step": dg.MetadataValue.int(facts["step"]),
        "loss_nats": dg.MetadataValue.float(facts["loss_nats"]),
        "iterations": dg.MetadataValue.int(len(facts["rollouts"])),
        "rollout_digests": dg.MetadataValue.json(dict(facts["rollouts"])),
    }


def iteration(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the means of an iteration, from the manifest alone."""
    facts = artifact.manifest.extra["iteration"]
    numbers: dict[str, dg.MetadataValue] = {
        name: dg.MetadataValue.float(float(value)) for name, value in facts.items() if value is not None
    }
    of_policy = artifact.manifest.extra["rollouts"]
    policy = dg.MetadataValue.text(f"{of_policy['policy_digest']} at step {of_policy['policy_step']}")
    return {**numbers, "policy": policy}


def sampled_rollouts(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return some rollouts with their verdicts as a Markdown table."""
    table = pl.read_parquet(
        artifact.file(ROLLOUTS_FILE), columns=["prompt_id", "text", "verdict", "reward", "advantage", "used"]
    )
    rows = table.gather_every(max(1, len(table) // SHOWN_ROLLOUTS)).head(SHOWN_ROLLOUTS)
    lines = ["| prompt | completion | verdict | reward | advantage | used |", "|---|---|---|---|---|---|"]
    for row in rows.iter_rows(named=True):
        reward = "none" if row["reward"] is None else f"{row['reward']:g}"
        cells = (row["prompt_id"], row["text"], row["verdict"], reward, f"{row['advantage']:+.2f}", str(row["used"]))
        lines.append("| " + " | ".join(cell(each) for each in cells) + " |")
    return {"sampled_rollouts": dg.MetadataValue.md("\n".join(lines))}


def cell(text: str) -> str:
    """Text in a cell: nothing that a completion holds can end the cell, the row or the code span."""
    plain = text.replace("\\", "\\\\").replace("|", "\\|").replace("`", "'")
    shown = "".join(letter if letter.isprintable() else " " for letter in plain)
    return f"`{shown[:200]}`" if shown.strip() else "(nothing)"


def curves(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return curves over the iterations that a checkpoint learned from."""
    return {"by_iteration": picture(lambda path: curves_png(artifact, path))}


def curves_png(checkpoint: Artifact, path: Path) -> None:
    """Draw six quantities by iteration; one that a run lacks (KL without a reference) stays empty."""
    facts = facts_of(checkpoint)
    figure = new_figure(8, 4.2)
    for place, name in enumerate(CURVES):
        axes = figure.add_subplot(2, 3, place + 1)
        values = [each.get(name) for each in facts]
        axes.plot([number for number, value in enumerate(values) if value is not None], [v for v in values if v is not None])
        axes.set_title(name.replace("_", " "), fontsize=9)
        axes.tick_params(labelsize=7)
    figure.savefig(path, dpi=DPI)


def held_out(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return accuracy with its error, and pass@k."""
    facts = artifact.manifest.extra["held_out"]
    rows = [{"k": int(k), "pass": value} for k, value in facts["pass_at_k"].items()]
    error = {} if facts["standard_error"] is None else {"standard_error": dg.MetadataValue.float(facts["standard_error"])}
    return {
        "accuracy": dg.MetadataValue.float(facts["accuracy"]),
        **error,
        "prompts": dg.MetadataValue.int(facts["prompts"]),
        "failed_prompts": dg.MetadataValue.int(facts["failed_prompts"]),
        "pass_at_k": records_table(rows, ("k", "pass")),
    }


def audit(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """Return the verdict and the counts of the audit of rollouts."""
    facts = artifact.manifest.extra["audit"]
    counts = {name: dg.MetadataValue.int(value) for name, value in facts["counts"].items()}
    before = facts["before"] or "nothing"
    return {"verdict": dg.MetadataValue.text(facts["verdict"]), **counts, "starts_from": dg.MetadataValue.text(before)}
