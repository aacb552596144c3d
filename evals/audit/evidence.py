"""Evidence of an audit: every match on a normalized document, and where that document went.

An audit that misses a source says "clean" and is wrong, so every link is checked. Every corpus needs marks of its own
documents against these very suites, and every cache of the mixture needs its corpus. Every matching document must be in
exactly one place (train, held-out, or dropped with a reason), and in the cache if and only if it is in train.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from evals.items.item import ITEMS_FILE
from lineage.artifact.store import Artifact
from lineage.match_tiers import CLEAN, DOUBTED_TIERS, ITEM_STATUSES, MATCHED, STANDING_TIERS, TIERS, WHOLE_ONLY
from lineage.order.mixture import caches_of
from lineage.order.order import DataOrder
from lineage.storage.digests import identity_digest

ITEM_KEY = ["suite", "task", "item_id"]
TRAIN = "train"
HELDOUT = "heldout"
_STATUS_RANK = {status: rank for rank, status in enumerate(ITEM_STATUSES)}


def tier_rank() -> pl.Expr:
    """Rank of the column `tier`; 0 is the strongest."""
    return pl.col("tier").replace_strict({tier: rank for rank, tier in enumerate(TIERS)}, return_dtype=pl.Int64)


def gather_matches(
    mixture: Artifact,
    order: DataOrder,
    suites: Sequence[Artifact],
    contamination: Sequence[Artifact],
    corpora: Sequence[Artifact],
) -> pl.DataFrame:
    """Return every match, with `corpus`, `component` ("" outside the mixture), `fate` (train, heldout or a drop
    reason), `trained`.

    Raises: ValueError naming the source that has no marks, the marks or cache of other documents, or the lost document.
    """
    wanted = {suite.data_version: suite.name for suite in suites}
    marks_of: dict[str, list[Artifact]] = {}
    for marks in contamination:
        bound = {ref.data_version for ref in marks.spec.inputs if ref.name.partition(".")[0] == "suites"}
        missing = sorted(set(wanted) - bound)
        if missing:
            raise ValueError(f"{marks.name} was not matched against {wanted[missing[0]]} as it is now; materialize it again")
        marks_of.setdefault(marks.input("normalized").data_version, []).append(marks)
    components = _components(mixture, order, corpora)
    frames = []
    for corpus in corpora:
        marks = marks_of.pop(corpus.input("normalized").data_version, [])
        if not marks:
            raise ValueError(f"{corpus.name}: none of the {len(contamination)} given marks describe its documents; add them")
        matches = pl.concat([pl.read_parquet(m.files("matches.parquet")[0]) for m in marks]).unique()
        fates = document_fates(corpus, matches["id"].unique().sort())
        for component in components.get(_trained_bytes(corpus), [""]):
            _check_cache(order, component, fates)
            trained = (pl.col("fate") == TRAIN) & (component != "")
            joined = matches.join(fates, on="id").with_columns(
                component=pl.lit(component), trained=trained, corpus=pl.lit(corpus.name)
            )
            frames.append(joined)
    if marks_of:
        stranger = next(iter(marks_of.values()))[0]
        raise ValueError(f"{stranger.name} marks documents that none of the given corpora was made from; add its corpus")
    return pl.concat(frames).sort(tier_rank(), pl.col("longest_run", "score") * -1, "component", "id", *ITEM_KEY, "channel")


def _components(mixture: Artifact, order: DataOrder, corpora: Sequence[Artifact]) -> dict[str, list[str]]:
    """Return the components of the mixture by the train documents of the corpus that their cache holds.

    The corpus itself is not compared. A corpus that was made again (other held-out documents, another domain) gives an
    equal cache if its train documents have the same bytes, and then the mixture correctly stays bound to the existing
    cache.
    """
    given = {_trained_bytes(corpus) for corpus in corpora}
    collected: dict[str, list[str]] = {}
    for name, cache in zip(order.names, caches_of(mixture), strict=True):
        corpus = cache.input("corpus")
        if _trained_bytes(corpus) not in given:
            raise ValueError(f"component {name} of {mixture.name} holds {corpus.name}, which the audit was not given; add it")
        collected.setdefault(_trained_bytes(corpus), []).append(name)
    return collected


def _trained_bytes(corpus: Artifact) -> str:
    """Digest a source's identity and its train documents: the input of a token cache. Two sources may share documents;
    their names in the manifest's key and partition differ.
    """
    train = [[entry.path, entry.digest] for entry in corpus.manifest.files if entry.path.startswith(f"{TRAIN}/")]
    return identity_digest([list(corpus.spec.key), corpus.spec.partition, sorted(train)])


def document_fates(corpus: Artifact, ids: pl.Series) -> pl.DataFrame:
    """Return (id, fate) of documents of a corpus. Raises: ValueError naming one that is nowhere, or in two places."""
    frames = [pl.DataFrame(schema={"id": pl.String, "fate": pl.String})]
    for split in (TRAIN, HELDOUT):
        for path in corpus.files(".parquet", under=f"{split}/"):
            frames.append(_rows_of(path, ids).select("id", fate=pl.lit(split)).collect())
    for path in corpus.files("dropped.parquet"):
        frames.append(_rows_of(path, ids).select("id", fate=pl.col("reason").cast(pl.String)).collect())
    fates = pl.concat(frames)
    places = ids.to_frame("id").join(fates.group_by("id").len(), on="id", how="left").with_columns(pl.col("len").fill_null(0))
    for document_id, count in places.filter(pl.col("len") != 1).sort("id").head(1).iter_rows():
        raise ValueError(
            f"{corpus.name}: matching document {document_id} is in {count} of train, held-out and dropped, not in one"
        )
    return fates


def _rows_of(path: Path, ids: pl.Series) -> pl.LazyFrame:
    return pl.scan_parquet(path).filter(pl.col("id").is_in(ids.implode()))


def _check_cache(order: DataOrder, component: str, fates: pl.DataFrame) -> None:
    if not component:
        return
    cache = order.caches[order.names.index(component)]
    for document_id, fate in fates.sort("id").iter_rows():
        if (cache.document_span(document_id) is not None) != (fate == TRAIN):
            raise ValueError(
                f"document {document_id}: its fate in the corpus is {fate!r}, which {cache.artifact_name} contradicts"
            )


def item_statuses(suites: Sequence[Artifact], contamination: Sequence[Artifact], matches: pl.DataFrame) -> pl.DataFrame:
    """Return (suite, task, item_id, status) of every item: matched somewhere, else unknown (too short to match
    anything, or matched in part or by a template only), else whole_only or clean (`lineage/match_tiers.py`).

    Raises: ValueError naming an item that the marks leave out, or that they do not call matched although a match
    stands.
    """
    items = pl.concat(list(_items(suites)))
    marks = pl.concat([pl.read_parquet(m.files("items.parquet")[0]) for m in contamination])
    rank = pl.col("status").replace_strict(_STATUS_RANK, return_dtype=pl.Int64).max()
    names = {rank: status for status, rank in _STATUS_RANK.items()}
    best = marks.group_by(ITEM_KEY).agg(rank=rank)
    joined = items.join(best, on=ITEM_KEY, how="left", validate="1:1")
    for item in joined.filter(pl.col("rank").is_null()).sort(ITEM_KEY).head(1).select(ITEM_KEY).iter_rows():
        raise ValueError(f"no marks cover item {'/'.join(item)}; they were made with other suites: materialize them again")
    statuses = joined.select(*ITEM_KEY, status=pl.col("rank").replace_strict(names, return_dtype=pl.String))
    standing = matches.filter(pl.col("tier").is_in(STANDING_TIERS)).select(ITEM_KEY).unique()
    hidden = statuses.filter(pl.col("status") != MATCHED).join(standing, on=ITEM_KEY, how="semi")
    for *item, status in hidden.sort(ITEM_KEY).head(1).iter_rows():
        raise ValueError(f"the marks call item {'/'.join(item)} {status}, but list a standing match of it")
    doubted = matches.filter(pl.col("tier").is_in(DOUBTED_TIERS)).select(ITEM_KEY).unique()
    cleared = statuses.filter(pl.col("status").is_in((CLEAN, WHOLE_ONLY))).join(doubted, on=ITEM_KEY, how="semi")
    for *item, status in cleared.sort(ITEM_KEY).head(1).iter_rows():
        raise ValueError(f"the marks call item {'/'.join(item)} {status}, but list a partial match of it")
    return statuses


def _items(suites: Sequence[Artifact]) -> Iterator[pl.DataFrame]:
    for suite in suites:
        yield pl.read_parquet(suite.files(ITEMS_FILE)[0], columns=ITEM_KEY)
