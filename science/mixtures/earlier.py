"""Runs of an earlier swarm as rows of a later one's table, after some of the sources were split into parts.

A run that read a share of a source read the same share of its parts together, each by its tokens. So old evidence is mapped
exactly, if the parts are all of the source and nothing else changed: tokens add up, and digests of other sources are equal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from lineage.artifact.store import Artifact
from science.forecasts.outcome import outcome_of
from science.mixtures.designs import split

SHARES, LOSSES = "shares.parquet", "losses.parquet"
EARLIER = "earlier"
type Row = dict[str, object]


@dataclass(frozen=True)
class Split:
    """A source of an earlier swarm, and the sources that it is now."""

    source: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Held:
    """What a swarm reads of a source: tokens and digest of the token cache."""

    tokens: int
    digest: str


def earlier_rows(
    table: Artifact, splits: Iterable[Split], sources: Mapping[str, Held], targets: Iterable[str], metric: str, policy: str
) -> tuple[list[Row], list[Row]]:
    """Rows of shares over the later sources, and rows of losses. Names of trials and anchors begin with `earlier/`.

    Raises: ValueError for another metric, policy or target, for parts whose tokens do not add up to the source's, and for a
    source that is not split and has other bytes now.
    """
    _check_comparable(table, metric, policy)
    shares, losses = (pl.read_parquet(table.file(name)) for name in (SHARES, LOSSES))
    old = {row["source"]: Held(row["tokens"], row["digest"]) for row in shares.iter_rows(named=True)}
    wide = shares.pivot("source", index="trial", values="share", maintain_order=True)
    names, weights = list(old), wide.select(list(old)).to_numpy()
    parts_of = {each.source: each.parts for each in splits}
    if strange := sorted(parts_of.keys() - old.keys()):
        raise ValueError(f"{table.name} has no source {', '.join(strange)} that could be split; it has {', '.join(old)}")
    for source, held in old.items():
        parts = _parts(table, source, held, parts_of.get(source, ()), sources)
        place = names.index(source)
        weights, names[place : place + 1] = split(weights, place, parts), list(parts)
    if set(names) != set(sources):
        raise ValueError(f"{table.name} has sources {', '.join(names)} after the split; the swarm has {', '.join(sources)}")
    order = [names.index(source) for source in sources]
    rows: list[Row] = [
        {"trial": f"{EARLIER}/{trial}", "source": source, "tokens": held.tokens, "digest": held.digest, "share": float(share)}
        for trial, row in zip(wide["trial"], weights[:, order], strict=True)
        for (source, held), share in zip(sources.items(), row, strict=True)
    ]
    wanted = list(targets)
    if absent := sorted(set(wanted) - set(losses["target"])):
        raise ValueError(f"{table.name} has no losses of {', '.join(absent)}; leave it out, or leave out the targets")
    return rows, [_renamed(row) for row in losses.filter(pl.col("target").is_in(wanted)).iter_rows(named=True)]


def _check_comparable(table: Artifact, metric: str, policy: str) -> None:
    if (other := str(table.spec.config["metric"])) != metric:
        raise ValueError(f"{table.name} has the metric {other}, the swarm has {metric}; give both one metric")
    if outcome_of(table.input("results.0")).policy != policy:
        raise ValueError(f"{table.name} was scored by another policy than the swarm; score all trials by one")


def _parts(table: Artifact, source: str, held: Held, parts: tuple[str, ...], sources: Mapping[str, Held]) -> dict[str, int]:
    """Tokens of what a source of the earlier table is now: its parts, or itself."""
    now = parts or (source,)
    if absent := [name for name in now if name not in sources]:
        raise ValueError(f"source {source} of {table.name} is {', '.join(absent)} now, which the swarm has not")
    found = {name: sources[name].tokens for name in now}
    if not parts and sources[source].digest != held.digest:
        raise ValueError(f"source {source} has other bytes than in {table.name}; its runs say nothing of it")
    if sum(found.values()) != held.tokens:
        raise ValueError(
            f"source {source} of {table.name} has {held.tokens:,} tokens, its parts {', '.join(now)} have "
            f"{sum(found.values()):,}; name parts that are all of it"
        )
    return found


def _renamed(row: Row) -> Row:
    anchor = f"{EARLIER}/{row['anchor']}" if row["anchor"] else ""
    return row | {"trial": f"{EARLIER}/{row['trial']}", "anchor": anchor}
