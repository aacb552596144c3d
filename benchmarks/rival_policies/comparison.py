"""Contamination policies side by side, over sources that all of them scanned.

It reads marks and item statuses and scans nothing. Recall and false positives are those that each scan measured on its own
planted items (`datakit/contamination/planted_items.py`), averaged over the sources.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from datakit.contamination.channels import ITEM_KEY
from lineage.artifact.store import Artifact


@dataclass(frozen=True)
class Comparison:
    """`policies`: a row a policy. `agreement`: a row a pair. `items`: key columns and, by policy, in how many documents the
    item is (null: the policy cannot match it). `documents`: id, source and, by policy, whether it marks the document; documents
    that no policy marks are left out."""

    policies: list[dict[str, Any]]
    agreement: list[dict[str, Any]]
    items: pl.DataFrame
    documents: pl.DataFrame


def compare_policies(scans: Sequence[Artifact], reference: str) -> Comparison:
    """Compare the marks of several policies. `reference`: the policy, by its own name, that the others are compared with.

    Raises: ValueError when the policies did not scan the same sources, or the reference is not among them.
    """
    by_policy: dict[str, list[Artifact]] = {}
    for marks in scans:
        by_policy.setdefault(marks.manifest.extra["contamination"]["policy"], []).append(marks)
    _check(reference, by_policy)
    documents = _documents(by_policy)
    items = _items(by_policy)
    names = [reference, *(name for name in by_policy if name != reference)]
    rows = [_row(name, by_policy[name], documents, items, reference) for name in names]
    agreement = [_agreement(a, b, documents, items) for at, a in enumerate(names) for b in names[at + 1 :]]
    return Comparison(rows, agreement, items, documents)


_AGREEMENT = {"policy": pl.String, "other": pl.String} | {
    f"{what}_{side}": pl.Int64 for what in ("documents", "items") for side in ("both", "only_first", "only_second")
}


def _check(reference: str, by_policy: Mapping[str, Sequence[Artifact]]) -> None:
    if reference not in by_policy:
        raise ValueError(f"reference is {reference!r}; the scans given are by {', '.join(sorted(by_policy))}")
    scanned = {
        name: sorted(marks.input("normalized").spec.name for marks in all_marks) for name, all_marks in by_policy.items()
    }
    for name, sources in scanned.items():
        if sources != scanned[reference]:
            raise ValueError(
                f"{name} scanned {', '.join(sources)}; {reference} scanned {', '.join(scanned[reference])}: "
                "policies can be compared on the same sources alone"
            )


def _documents(by_policy: Mapping[str, Sequence[Artifact]]) -> pl.DataFrame:
    """`source`, `id`, and by policy whether it marks the document; documents that no policy marks are left out."""
    joined = None
    for name, scans in by_policy.items():
        parts = [
            pl.scan_parquet(marks.files(".parquet", under="marks/"))
            .filter("contaminated")
            .select(pl.lit(marks.input("normalized").spec.name).alias("source"), "id", pl.lit(True).alias(name))
            for marks in scans
        ]
        marked = pl.concat(parts).collect()
        joined = marked if joined is None else joined.join(marked, on=["source", "id"], how="full", coalesce=True)
    assert joined is not None
    return joined.with_columns(pl.col(list(by_policy)).fill_null(False)).sort("source", "id")


def _items(by_policy: Mapping[str, Sequence[Artifact]]) -> pl.DataFrame:
    """Key columns, and by policy in how many documents of all sources each item is; null where it cannot be matched."""
    joined = None
    for name, scans in by_policy.items():
        frames = [pl.read_parquet(marks.folder() / "items.parquet") for marks in scans]
        known = pl.concat(frames).with_columns(counted=pl.when(pl.col("status") != "unknown").then("num_documents"))
        counts = known.group_by(ITEM_KEY).agg(pl.when(pl.col("counted").count() > 0).then(pl.col("counted").sum()).alias(name))
        joined = counts if joined is None else joined.join(counts, on=ITEM_KEY, how="full", coalesce=True)
    assert joined is not None
    return joined.sort(ITEM_KEY)


def _row(name: str, scans: Sequence[Artifact], documents: pl.DataFrame, items: pl.DataFrame, reference: str) -> dict[str, Any]:
    counted = [marks.manifest.extra["contamination"] for marks in scans]
    proofs = [marks.manifest.extra["canaries"] for marks in scans]
    num_documents, marked = sum(c["documents"] for c in counted), int(documents[name].sum())
    together = int((documents[name] & documents[reference]).sum())
    either = int((documents[name] | documents[reference]).sum())
    return {
        "policy": name,
        "documents": num_documents,
        "marked": marked,
        "marked_share": round(marked / max(num_documents, 1), 6),
        "items_matched": int((items[name] > 0).sum()),
        "items_clean": int((items[name] == 0).sum()),
        "items_unknown": items[name].null_count(),
        "agreement": round(together / either, 4) if either else 1.0,
        **{f"recall_{form}": _mean(p["recall"][form] for p in proofs) for form in proofs[0]["recall"]},
        **{f"false_{kind}": _mean(p["false_positives"][kind] for p in proofs) for kind in proofs[0]["false_positives"]},
    }


def _agreement(a: str, b: str, documents: pl.DataFrame, items: pl.DataFrame) -> dict[str, Any]:
    row: dict[str, Any] = {"policy": a, "other": b}
    for what, first, second in (
        ("documents", documents[a], documents[b]),
        ("items", (items[a] > 0).fill_null(False), (items[b] > 0).fill_null(False)),
    ):
        sides = {"both": first & second, "only_first": first & ~second, "only_second": second & ~first}
        row |= {f"{what}_{side}": int(values.sum()) for side, values in sides.items()}
    return row


def _mean(values) -> float:
    numbers = list(values)
    return round(sum(numbers) / len(numbers), 4)


def as_markdown(comparison: Comparison) -> str:
    """Three tables: what is marked, what planted items are found, who agrees with whom."""
    rows, agreement = comparison.policies, comparison.agreement
    recall, false = ([key for key in rows[0] if key.startswith(prefix)] for prefix in ("recall_", "false_"))
    counts = [key for key in rows[0] if key not in (*recall, *false)]
    marked = "# Contamination policies side by side\n\n" + markdown_table(rows, counts)
    reference = f"`agreement`: documents marked by both / by either, with {rows[0]['policy']}.\n"
    planted = "## Planted items found, by form; marked falsely\n\n" + markdown_table(rows, ["policy", *recall, *false])
    return "\n".join((marked, reference, planted, "## Pairs\n\n" + markdown_table(agreement, list(_AGREEMENT))))


def markdown_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row[column]) for column in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"
