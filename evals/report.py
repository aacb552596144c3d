"""The page that ends a ferry: what every stage did, the loss curve, the scores, the audit's verdict. One file, no network.

The same rows feed the terminal table, so the page and the prompt cannot disagree.
"""

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from evals.plots import scores_png
from lineage.plan import Stage
from lineage.store import Artifact, Writer
from trainer.plots import loss_curve_png


@dataclass(frozen=True)
class ReportConfig:
    """Nothing to choose; the format number is identity."""

    format: int = 1


@dataclass(frozen=True)
class StageRow:
    """One stage summed over its artifacts (a source each): counts, drops by reason, seconds, largest peak memory."""

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
    """One row a stage, in the order the artifacts come."""
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
    """Entropy of the held-out tokens' own unigram distribution, in nats, where an evaluation measured it."""
    found = [float(s["value"]) for s in scores if s["metric"] == "unigram_entropy_nats_per_token" and s["task"] == "heldout"]
    return found[0] if found else None


def write_report(out: Writer, config: ReportConfig, artifacts: tuple[Artifact, ...]) -> None:
    """Write `report.html`, `loss.png` and `scores.png`."""
    by_stage = {artifact.spec.stage: artifact for artifact in artifacts}
    checkpoint, result, audit = (by_stage[s] for s in ("trainer.checkpoint", "evals.result", "evals.audit"))
    scores = result.manifest.extra["scores"]
    metrics = pl.read_parquet(checkpoint.files("metrics.parquet")[0])
    loss_curve_png(metrics, out.folder / "loss.png", unigram_entropy=unigram_entropy(scores))
    scores_png(scores, result.name, out.folder / "scores.png")
    page = _page(out.spec.name, artifacts, scores, audit, out.folder)
    (out.folder / "report.html").write_text(page)
    out.extra["verdict"] = audit.manifest.extra["audit"]["verdict"]


REPORT = Stage("evals.report", "1", write_report)


def _page(title: str, artifacts: Sequence[Artifact], scores: Sequence[Mapping], audit: Artifact, pictures: Path) -> str:
    verdict = audit.manifest.extra["audit"]["verdict"]
    details = json.loads(audit.files("audit.json")[0].read_text())
    sections = [
        ("Stages", _table(_STAGE_COLUMNS, [_cells(row) for row in stage_rows(artifacts)])),
        ("Loss", _image(pictures / "loss.png")),
        ("Scores", _image(pictures / "scores.png") + _table(*_scores(scores))),
        (f"Audit: {verdict}", f"<pre>{html.escape(json.dumps(details, indent=1, ensure_ascii=False))}</pre>"),
        ("Artifacts", _table(("artifact", "data version", "seconds", "files"), [_line(a) for a in artifacts])),
    ]
    body = "".join(f"<section><h2>{html.escape(name)}</h2>{content}</section>" for name, content in sections)
    return _FRAME.format(title=html.escape(title), body=body)


_STAGE_COLUMNS = (
    "stage",
    "artifacts",
    "rows in",
    "rows out",
    "MB out",
    "tokens out",
    "drops by reason",
    "seconds",
    "peak MiB",
)


def _cells(row: StageRow) -> tuple[str, ...]:
    drops = ", ".join(f"{reason} {count:,}" for reason, count in row.drops.items())
    return (
        row.stage,
        str(row.num_artifacts),
        f"{row.rows_in:,}",
        f"{row.rows_out:,}",
        f"{row.bytes_out / 1e6:.1f}",
        f"{row.tokens_out:,}",
        drops,
        f"{row.seconds:.1f}",
        f"{row.peak_mib:.0f}",
    )


def _scores(scores: Sequence[Mapping[str, Any]]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows = [(s["task"], s["metric"], f"{s['value']:.4f}", f"{s['low']:.4f} to {s['high']:.4f}", f"{s['n']:,}") for s in scores]
    return ("task", "metric", "value", "95 % interval", "n"), rows


def _line(artifact: Artifact) -> tuple[str, ...]:
    manifest = artifact.manifest
    return artifact.name, artifact.data_version, f"{manifest.resources.wall_seconds:.1f}", str(len(manifest.files))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _image(path: Path) -> str:
    return f'<img alt="{path.stem}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'


_FRAME = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body{{font:15px/1.5 system-ui,sans-serif;color:#1d2433;max-width:72rem;margin:2rem auto;padding:0 1rem}}
h1{{font-size:1.4rem}} h2{{font-size:1.1rem;margin-top:2rem;border-bottom:1px solid #d8dde6}}
table{{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}} td,th{{padding:.25rem .6rem;text-align:left;
border-bottom:1px solid #eceff4;vertical-align:top}} .scroll{{overflow-x:auto}} img{{max-width:100%}}
pre{{background:#f6f7f9;padding:1rem;overflow:auto;max-height:30rem;font-size:12px}}
</style><h1>{title}</h1>{body}</html>
"""
