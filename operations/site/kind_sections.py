"""Sections that only pages of one kind have: scores, verdicts, cards, curves. Formats are those of the engines' manifests."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from operations.site.content import Block, Cell, Curve, Facts, Note, Table, Verbatim
from operations.site.names import TRAINED, Names, as_time, kind_of, mapping, number, rows_in, shown
from operations.site.store_reader import Place, SiteArtifact, World
from operations.site.veil import kept_back

CARD_STAGE, CARD_FILE = "datakit.card", "card.md"
CARD_BYTES = 400_000
METRICS = "metrics.parquet"

type Titled = Iterator[tuple[str, list[Block]]]


def source_sections(world: World, names: Names, one: SiteArtifact) -> Titled:
    """The data card: what the source declares, what became of its documents, and the card's own text if it may be shown."""
    source = mapping(one.artifact.manifest.extra.get("source"))
    why_not = kept_back(source)
    rows: list[tuple[str, Cell]] = [(name, shown(source.get(name))) for name in ("name", "domain", "format")]
    rows += [("licence", licence_of(source)), ("terms", shown(source.get("terms")))]
    if not why_not:
        rows += [(f"loader: {name}", shown(value)) for name, value in mapping(source.get("loader")).items()]
    blocks: list[Block] = [Facts(tuple(rows))]
    below = [place for place in _below(world, one.place) if kind_of(world.artifacts[place]) in ("corpus", "artifact")]
    fates = [_fate(world, names, place) for place in below if world.artifacts[place].artifact.spec.stage.startswith("datakit.")]
    if fates:
        blocks.append(Table("What became of it", ("artifact", "stage", "rows in", "rows out"), tuple(fates), (2, 3)))
    if why_not:
        blocks.append(Note(f"Files and excerpts are not shown: {why_not}.", warning=True))
    else:
        blocks += _card_texts(world, one)
    yield "Data card", blocks


def _below(world: World, place: Place) -> list[Place]:
    """What was made from only one source: children, and their children by the last part of their partition or key."""
    below: dict[Place, None] = {}
    pending = [place]
    while pending and len(below) < 40:
        children = [c for c in world.children.get(pending.pop(0), ()) if c in world.artifacts and c not in below]
        children = [c for c in children if not world.artifacts[c].withheld and len(world.ancestors(c, 60)) < 60]
        below.update(dict.fromkeys(children))
        pending += [c for c in children if world.artifacts[c].artifact.spec.stage.startswith("datakit.normalize")]
    return list(below)


def _fate(world: World, names: Names, place: Place) -> tuple[Cell, ...]:
    manifest = world.artifacts[place].artifact.manifest
    counts = manifest.statistics
    return names.artifact(place), manifest.spec.stage, shown(counts.get("rows_in")), shown(counts.get("rows_out"))


def _card_texts(world: World, one: SiteArtifact) -> list[Block]:
    texts: list[Block] = []
    for place in _below(world, one.place):
        card = world.artifacts[place].artifact
        above = [world.artifacts[place] for place in world.ancestors(place)]
        shut = any(each.withheld or (kind_of(each) == "source" and kept_back(declared(each))) for each in above)
        if card.spec.stage != CARD_STAGE or shut or CARD_FILE not in card.manifest.paths:
            continue
        card.verify(only=[CARD_FILE])
        size = next(entry.bytes for entry in card.manifest.files if entry.path == CARD_FILE)
        texts.append(Verbatim(card.read_range(CARD_FILE, 0, min(size, CARD_BYTES)).decode(errors="replace")))
    return texts


def declared(one: SiteArtifact) -> Mapping[str, Any]:
    """Return the source record of a raw artifact; empty for others."""
    return mapping(one.artifact.manifest.extra.get("source"))


def licence_of(source: Mapping[str, Any]) -> str:
    """Return the licence, and whether it is a claim that nobody checked."""
    licence = source.get("licence")
    if isinstance(licence, Mapping):
        return f"not verified; claimed: {shown(licence.get('claim'))}"
    return shown(licence)


def sources_table(world: World, names: Names, places: Sequence[Place]) -> Table | Note:
    """Return the sources among the ancestors of some artifacts, with their licences."""
    above = {
        place: None for of in places for place in (of, *world.ancestors(of)) if kind_of(world.artifacts[place]) == "source"
    }
    rows = [
        (names.artifact(p), licence_of(declared(world.artifacts[p])), shown(declared(world.artifacts[p]).get("terms")))
        for p in above
    ]
    return (
        Table("Sources above it", ("source", "licence", "terms"), tuple(rows)) if rows else Note("No source above it is here.")
    )


def corpus_sections(world: World, names: Names, one: SiteArtifact) -> Titled:
    """Yield the data card of a corpus."""
    counts = one.artifact.manifest.statistics
    facts = [
        (name, shown(counts.get(f"rows_{key}"))) for name, key in (("training documents", "train"), ("held out", "heldout"))
    ]
    drops = [(str(why), shown(count)) for why, count in mapping(counts.get("drops")).items()]
    blocks: list[Block] = [Facts(tuple(facts)), sources_table(world, names, [one.place])]
    if drops:
        blocks.append(Table("Left out", ("why", "documents"), tuple(drops), (1,)))
    yield "Data card", blocks


def checkpoint_sections(world: World, names: Names, one: SiteArtifact) -> Titled:
    """Yield model card, learning curve, data, and evaluations of a checkpoint."""
    yield "Model card", model_card(one)
    yield "Learning curve", [curve_of(one)]
    yield "Data", [sources_table(world, names, [one.place])]
    yield "Evaluations and audits", about_checkpoints(world, names, [one.place])


def model_card(one: SiteArtifact) -> list[Block]:
    """What a checkpoint is: sizes, the recipe of its training, and how fast it was."""
    run = mapping(mapping(one.artifact.spec.config).get("run"))
    facts, speed = (mapping(one.artifact.manifest.extra.get(name)) for name in ("checkpoint", "throughput"))
    rows = [
        *((name.replace("_", " "), facts.get(name)) for name in ("step", "tokens_seen", "parameters", "loss_nats")),
        *((name.replace("_", " "), run.get(name)) for name in ("num_steps", "batch_size", "seq_len", "seed")),
        *((f"model: {name}", value) for name, value in mapping(run.get("model")).items()),
        *((f"optimizer: {name}", value) for name, value in mapping(run.get("optimizer")).items()),
        *((f"schedule: {name}", value) for name, value in mapping(run.get("schedule")).items()),
        ("tokens per second", speed.get("tokens_per_second")),
        ("MFU", speed.get("mfu")),
    ]
    return [Facts(tuple((str(name), shown(value)) for name, value in rows if value is not None))]


def curve_of(one: SiteArtifact) -> Curve | Note:
    """Return the learning curve of a checkpoint, or a note that there is none."""
    digest = next((entry.digest for entry in one.artifact.manifest.files if entry.path == METRICS), None)
    return Note("No curve was recorded.") if digest is None else Curve(*one.place, digest)


def about_checkpoints(world: World, names: Names, places: Sequence[Place]) -> list[Block]:
    """Return the scores and audits of some checkpoints. On the page of one checkpoint no column names it."""
    about = [(place, c) for place in places for c in world.children.get(place, ()) if c in world.artifacts]
    many = len(places) > 1
    scores = [
        (names.artifact(child), *_named(names, place, many=many), *row)
        for place, child in about
        if kind_of(world.artifacts[child]) == "evaluation" and not world.artifacts[child].withheld
        for row in score_rows(world.artifacts[child])
    ]
    audits = [
        (names.artifact(child), *_named(names, place, many=many), _audit_verdict(world.artifacts[child]))
        for place, child in about
        if kind_of(world.artifacts[child]) == "audit"
    ]
    of = ("checkpoint",) if many else ()
    columns = ("evaluation", *of, "task", "metric", "value", "95 % interval", "items")
    numbers = (len(columns) - 3, len(columns) - 1)
    blocks: list[Block] = [Table("Scores", columns, tuple(scores[:400]), numbers)] if scores else [Note("No scores.")]
    blocks.append(Table("Audits", ("audit", *of, "verdict"), tuple(audits)) if audits else Note("No audit."))
    return blocks


def _named(names: Names, place: Place, *, many: bool) -> tuple[Cell, ...]:
    return (names.artifact(place),) if many else ()


def score_rows(one: SiteArtifact) -> list[tuple[str, ...]]:
    """Return task, metric, value, interval and number of items of each score."""
    rows: list[tuple[str, ...]] = _held_out_rows(one)
    extra = one.artifact.manifest.extra
    for score in rows_in(extra.get("scores") or mapping(extra.get("result")).get("scores")):
        low, high = number(score.get("low")), number(score.get("high"))
        interval = "" if low is None or high is None else f"{low:.4g} to {high:.4g}"
        about = (shown(score.get("task")), shown(score.get("metric")), shown(number(score.get("value"))))
        rows.append((*about, interval, shown(score.get("n"))))
    return rows


def _held_out_rows(one: SiteArtifact) -> list[tuple[str, ...]]:
    """Return the scores of a run on rewards on held-out prompts: `accuracy` of single samples and pass@k."""
    facts = mapping(one.artifact.manifest.extra.get("held_out"))
    scores = {"accuracy": facts.get("accuracy")} | {f"pass@{k}": v for k, v in mapping(facts.get("pass_at_k")).items()}
    known = [(metric, number(value)) for metric, value in scores.items() if value is not None]
    return [("held-out prompts", metric, shown(value), "", shown(facts.get("prompts"))) for metric, value in known]


def evaluation_sections(world: World, names: Names, one: SiteArtifact) -> Titled:
    """Yield policy and scores of an evaluation."""
    policy = mapping(one.artifact.manifest.extra.get("policy"))
    rows = score_rows(one)
    columns = ("task", "metric", "value", "95 % interval", "items")
    blocks: list[Block] = [Facts((("policy", shown(policy.get("name"))),))]
    blocks.append(Table("Scores", columns, tuple(rows), (2, 4)) if rows else Note("Its manifest lists no scores."))
    yield "Scores", blocks


def _audit_verdict(one: SiteArtifact) -> str:
    return "withheld" if one.withheld else shown(mapping(one.artifact.manifest.extra.get("audit")).get("verdict"))


def audit_sections(world: World, names: Names, one: SiteArtifact) -> Titled:
    """Yield verdict and counts of an audit."""
    audit = mapping(one.artifact.manifest.extra.get("audit"))
    columns = ("items", "matched_before", "matched_after", "matched_heldout", "unknown", "whole_only", "seen_in_training")
    tasks = mapping(audit.get("by_task")).items()
    rows = tuple((str(task), *(shown(mapping(counts).get(name)) for name in columns)) for task, counts in tasks)
    blocks: list[Block] = [Facts((("verdict", _audit_verdict(one)), ("step", shown(audit.get("step")))))]
    titles = ("task", *(name.replace("_", " ") for name in columns))
    counts = [(str(name).replace("_", " "), shown(count)) for name, count in mapping(audit.get("counts")).items()]
    if rows:
        blocks.append(Table("Items by task", titles, rows, tuple(range(1, 8))))
    else:  # an audit of rollouts counts all tasks together
        blocks.append(Facts(tuple(counts)) if counts else Note("No task was audited."))
    yield "Verdict", blocks


def suite_sections(world: World, names: Names, one: SiteArtifact) -> Titled:
    """Yield the tasks of a suite, without its items."""
    suite = mapping(one.artifact.manifest.extra.get("suite"))
    about = mapping(suite.get("about"))
    tasks = mapping(suite.get("tasks")).items()
    rows = tuple((str(task), shown(n), shown(mapping(about.get(task)).get("licence"))) for task, n in tasks)
    blocks: list[Block] = [Table("Tasks", ("task", "items", "licence"), rows, (1,))] if rows else []
    blocks.append(Note("Items are not shown: items on a public page leak into training text."))
    yield "Tasks", blocks


def forecast_sections(world: World, names: Names, one: SiteArtifact) -> Titled:
    """Yield what a forecast says, and its verdict."""
    extra = one.artifact.manifest.extra
    facts, verdict = mapping(extra.get("forecast")), mapping(extra.get("verdict"))
    target, metric = mapping(facts.get("target")), mapping(facts.get("metric"))
    rows = [
        *((name, target.get(key)) for name, key in (("target", "name"), ("parameters", "parameters"), ("tokens", "tokens"))),
        *((name, metric.get(key)) for name, key in (("task", "task"), ("metric", "name"))),
        ("forecast", facts.get("point")),
        *((f"interval {level}", bounds) for level, bounds in mapping(facts.get("intervals")).items()),
        *((name, verdict.get(name)) for name in ("outcome", "measured", "why")),
    ]
    frozen = as_time(one.artifact.manifest.created)
    blocks: list[Block] = [Facts((*((str(k), shown(v)) for k, v in rows if v is not None), ("recorded", frozen)))]
    runs = {place: None for place in world.ancestors(one.place) if world.artifacts[place].artifact.spec.stage in TRAINED}
    if runs:
        blocks.append(Table("Runs that it rests on", ("checkpoint",), tuple((names.artifact(place),) for place in runs)))
    yield "Forecast", blocks


SECTIONS_OF_KIND: Mapping[str, Callable[[World, Names, SiteArtifact], Titled]] = {
    "source": source_sections,
    "corpus": corpus_sections,
    "checkpoint": checkpoint_sections,
    "evaluation": evaluation_sections,
    "audit": audit_sections,
    "suite": suite_sections,
    "forecast": forecast_sections,
}
