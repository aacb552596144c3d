"""The page that ends a ferry: what every stage did, the loss curve, the scores, the audit's verdict. One file, no
network.

The same rows feed the terminal table, so page and terminal cannot disagree.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from evals.audit.page import audit_section
from evals.scoring.plots import scores_png
from evals.scoring.report_page import Table, image, page, scores_table
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer
from trainer.api import loss_curve_png


@dataclass(frozen=True)
class ReportConfig:
    """There is nothing to choose; the format number is identity."""

    format: int = 1


@dataclass(frozen=True)
class StageRow:
    """One stage summed over its artifacts (one a source): counts, drops by reason, seconds, largest peak memory."""

    stage: str
    num_artifacts: int
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    tokens_in: int
    tokens_out: int
    drops: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    peak_mib: float = 0.0


def stage_rows(artifacts: Sequence[Artifact]) -> list[StageRow]:
    """Return one row for each stage, in the order of the artifacts."""
    groups: dict[str, list[Artifact]] = {}
    for artifact in artifacts:
        groups.setdefault(artifact.spec.stage, []).append(artifact)
    return [_row(stage, members) for stage, members in groups.items()]


def _row(stage: str, members: Sequence[Artifact]) -> StageRow:
    drops: dict[str, int] = {}
    for member in members:
        for reason, count in dict(member.manifest.statistics.get("drops") or {}).items():
            drops[reason] = drops.get(reason, 0) + int(count)

    def total(name: str) -> int:
        return sum(int(member.manifest.statistics.get(name) or 0) for member in members)

    return StageRow(
        stage=stage,
        num_artifacts=len(members),
        rows_in=total("rows_in"),
        rows_out=total("rows_out"),
        bytes_in=total("bytes_in"),
        bytes_out=total("bytes_out") or sum(entry.bytes for m in members for entry in m.manifest.files),
        tokens_in=total("tokens_in"),
        tokens_out=total("tokens_out"),
        drops=dict(sorted(drops.items(), key=lambda item: (-item[1], item[0]))),
        seconds=sum(member.manifest.resources.wall_seconds for member in members),
        peak_mib=max(member.manifest.resources.peak_rss_bytes for member in members) / 2**20,
    )


def unigram_entropy(scores: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the entropy of the held-out tokens' own unigram distribution, in nats, if an evaluation measured it."""
    entropies = [
        float(s["value"]) for s in scores if s["metric"] == "unigram_entropy_nats_per_token" and s["task"] == "heldout"
    ]
    return entropies[0] if entropies else None


def write_report(out: Writer, config: ReportConfig, artifacts: tuple[Artifact, ...]) -> None:
    """Write `report.html`, `loss.png` and `scores.png`."""
    by_stage = {artifact.spec.stage: artifact for artifact in artifacts}
    checkpoint, result, audit = (by_stage[s] for s in ("trainer.checkpoint", "evals.result", "evals.audit"))
    scores = result.manifest.extra["scores"]
    metrics = pl.read_parquet(checkpoint.files("metrics.parquet")[0])
    loss_curve_png(metrics, out.folder / "loss.png", unigram_entropy=unigram_entropy(scores))
    step = checkpoint.manifest.extra["checkpoint"]["step"]
    scores_png(scores, f"{result.name} at step {step:,}", out.folder / "scores.png")
    sections = [
        ("Stages", _stages_table(stage_rows(artifacts)).html()),
        ("Loss", image(out.folder / "loss.png")),
        ("Scores", image(out.folder / "scores.png") + scores_table(scores).html()),
        ("Audit", audit_section(json.loads(audit.files("audit.json")[0].read_text()))),
        ("Artifacts", _artifacts_table(artifacts).html()),
    ]
    (out.folder / "report.html").write_text(page(out.spec.name, _headlines(artifacts, by_stage), sections))
    out.extra["verdict"] = audit.manifest.extra["audit"]["verdict"]


REPORT = Stage("evals.report", "3", write_report)
"""2: headline numbers, and the audit as tables. 3: scores over too few of their items are named and drawn as
incomplete.
"""


def _headlines(artifacts: Sequence[Artifact], by_stage: Mapping[str, Artifact]) -> dict[str, str]:
    facts = by_stage["trainer.checkpoint"].manifest.extra["checkpoint"]
    throughput = by_stage["trainer.checkpoint"].manifest.extra["throughput"]
    scores = by_stage["evals.result"].manifest.extra["scores"]
    mixture = by_stage["trainer.checkpoint"].input("mixture")
    heldout = {s["metric"]: s["value"] for s in scores if s["task"] == "heldout"}
    return {
        "tokens in the mixture": f"{mixture.manifest.statistics['tokens_out']:,}",
        "training loss, nats a token": f"{facts['loss_nats']:.3f} at step {facts['step']:,}",
        "held-out loss, nats a token": f"{heldout['loss_nats_per_token']:.3f}",
        "held-out, macro bits per byte": f"{heldout['macro_bits_per_byte']:.3f}",
        "tokens a second": f"{throughput['tokens_per_second']:,.0f}",
        "incomplete tasks": ", ".join(by_stage["evals.result"].manifest.extra["incomplete"]) or "none",
        "audit": by_stage["evals.audit"].manifest.extra["audit"]["verdict"].replace("_", " "),
        "seconds of work": f"{sum(a.manifest.resources.wall_seconds for a in artifacts):,.0f}",
    }


def _stages_table(rows: Sequence[StageRow]) -> Table:
    numbers = ("artifacts", "rows in", "rows out", "MB out", "tokens out", "seconds", "peak MiB")
    cells = [
        (
            row.stage,
            str(row.num_artifacts),
            *(f"{count:,}" if count else "" for count in (row.rows_in, row.rows_out)),
            f"{row.bytes_out / 1e6:.1f}",
            f"{row.tokens_out:,}" if row.tokens_out else "",
            f"{row.seconds:.1f}",
            f"{row.peak_mib:.0f}",
            ", ".join(f"{reason} {count:,}" for reason, count in row.drops.items()),
        )
        for row in rows
    ]
    return Table(("stage", *numbers, "drops by reason"), cells, frozenset(numbers))


def _artifacts_table(artifacts: Sequence[Artifact]) -> Table:
    rows = [(a.name, a.data_version, f"{a.manifest.resources.wall_seconds:.1f}", str(len(a.manifest.files))) for a in artifacts]
    return Table(("artifact", "data version", "seconds", "files"), rows, frozenset({"seconds", "files"}))
