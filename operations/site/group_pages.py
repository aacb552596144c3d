"""Pages about several artifacts: a run with its checkpoints, and a sweep with its trials."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from operations.site.artifact_pages import lineage_graph, listing
from operations.site.content import Block, Cell, Facts, Note, Page, Section
from operations.site.kind_sections import about_checkpoints, curve_of, model_card, sources_table
from operations.site.names import TRAINED, Names, as_date, as_time, mapping, number, run_of, shown, sweep_of
from operations.site.store_reader import Place, SiteArtifact, World

CURVES = 4
ROLLOUTS = "post_training.rollouts"

type Group = tuple[str, str]
"""A store's name and the name of a run or sweep in it."""


def runs_of(world: World) -> dict[Group, list[SiteArtifact]]:
    """Return the checkpoints of each run, newest step last."""
    runs: dict[Group, list[SiteArtifact]] = {}
    for one in world.artifacts.values():
        if one.artifact.spec.stage in TRAINED:
            runs.setdefault(run_of(one), []).append(one)
    return {run: sorted(of, key=_step) for run, of in sorted(runs.items())}


def sweeps_of(world: World) -> dict[Group, list[SiteArtifact]]:
    """Return the artifacts of each sweep, by name."""
    sweeps: dict[Group, list[SiteArtifact]] = {}
    for one in world.artifacts.values():
        if (sweep := sweep_of(one)) is not None:
            sweeps.setdefault(sweep, []).append(one)
    return {sweep: sorted(of, key=lambda one: one.place) for sweep, of in sorted(sweeps.items())}


def run_page(world: World, names: Names, run: Group, checkpoints: Sequence[SiteArtifact]) -> Page:
    """Return the page of a run. Of a withheld checkpoint only the name is shown."""
    open_ones = [one for one in checkpoints if not one.withheld]
    newest = max(one.artifact.manifest.created for one in checkpoints)
    sweep = sweep_of(checkpoints[-1])
    short: list[tuple[str, Cell]] = [("checkpoints", str(len(checkpoints))), ("last", as_time(newest)), ("store", run[0])]
    short += [("sweep", names.sweep(sweep))] if sweep is not None else []
    short += [("cost of all attempts", cost_of(world, [one.place for one in checkpoints]))]
    blocks: list[Block] = [Facts(tuple(short))]
    withheld = [one for one in checkpoints if one.withheld]
    blocks += [Note(f"{names.artifact(one.place).text} is withheld. {one.withheld}", warning=True) for one in withheld]
    rows = [(names.artifact(one.place), as_time(one.artifact.manifest.created), *_loss(one)) for one in checkpoints]
    blocks += listing("Checkpoints", ("checkpoint", "made", "step", "loss (nats)"), rows, (2, 3))
    sections = [Section("In short", tuple(blocks))]
    if open_ones:
        last = {one.artifact.spec.process: one for one in open_ones}
        sections.append(Section("Learning curve", tuple(curve_of(one) for one in list(last.values())[-CURVES:])))
        rolled = _rollouts(world, names, run)
        if rolled:
            columns = ("iteration", "rollouts", "mean reward", "right", "used")
            sections.append(Section("Rollouts", tuple(listing("Rollouts by iteration", columns, rolled, (1, 2, 3, 4)))))
        sections.append(Section("Model card", tuple(model_card(open_ones[-1]))))
        places = [one.place for one in open_ones]
        sections.append(Section("Data", (sources_table(world, names, places[-1:]),)))
        sections.append(Section("Evaluations and audits", tuple(about_checkpoints(world, names, places))))
    forecasts = _forecasts(world, names, [one.place for one in checkpoints])
    sections.append(Section("Forecasts", tuple(listing("Forecasts that rest on it", ("forecast",), forecasts))))
    sections.append(Section("Lineage", (lineage_graph(world, names, [checkpoints[-1].place]),)))
    summary = f"{len(checkpoints)} checkpoints"
    return Page(names.paths["run", run], "run", run[1], as_date(newest), summary, tuple(sections))


def sweep_page(world: World, names: Names, sweep: Group, members: Sequence[SiteArtifact]) -> Page:
    """Return the page of a sweep: its trials with their last losses and costs, and its other artifacts."""
    trials = [one for one in members if one.artifact.spec.stage in TRAINED]
    runs = {run_of(one): one for one in sorted(trials, key=_step)}
    rows = [(names.run(run), *_loss(one), cost_of(world, [one.place])) for run, one in sorted(runs.items())]
    newest = max(one.artifact.manifest.created for one in members)
    blocks: list[Block] = [Facts((("trials", str(len(runs))), ("last", as_time(newest)), ("store", sweep[0])))]
    blocks += listing("Trials", ("trial", "step", "loss (nats)", "cost"), rows, (1, 2, 3))
    others = [one for one in members if one.artifact.spec.stage not in TRAINED]
    other_rows = [(names.artifact(one.place), one.artifact.spec.stage) for one in others]
    sections = (
        Section("In short", tuple(blocks)),
        Section("Results and forecasts", tuple(listing("Other artifacts of the sweep", ("artifact", "stage"), other_rows))),
    )
    return Page(names.paths["sweep", sweep], "sweep", sweep[1], as_date(newest), f"{len(runs)} trials", sections)


def cost_of(world: World, places: Sequence[Place]) -> str:
    """Return the sum of the costs, or a text that it is unknown. An unknown cost is never 0."""
    costs: list[Mapping[str, object]] = [world.costs[place] for place in places if place in world.costs]
    unknown = sorted({str(cost["unpriced"]) for cost in costs if cost["dollars"] is None})
    if unknown or not costs:
        return f"not known: {'; '.join(unknown) or 'no attempt is recorded'}"
    return shown(sum((Decimal(str(cost["dollars"])) for cost in costs), Decimal(0)))


def _rollouts(world: World, names: Names, run: Group) -> list[tuple[Cell, ...]]:
    """What a run on rewards has sampled, in the order of its iterations. Of what is withheld only the name is shown."""
    of_run = [
        one
        for one in world.artifacts.values()
        if one.artifact.spec.stage == ROLLOUTS and (one.place[0], "/".join(one.artifact.spec.key[:-1])) == run
    ]
    rows: list[tuple[Cell, ...]] = []
    for one in sorted(of_run, key=lambda one: one.place):
        facts = {} if one.withheld else mapping(one.artifact.manifest.extra.get("iteration"))
        count = None if one.withheld else one.artifact.manifest.statistics.get("rows_out")
        numbers = (shown(number(facts.get(name))) for name in ("reward", "right"))
        rows.append((names.artifact(one.place), shown(count), *numbers, shown(facts.get("used"))))
    return rows


def _forecasts(world: World, names: Names, places: Sequence[Place]) -> list[tuple[Cell, ...]]:
    forecasts: dict[Place, None] = {}
    pending, seen = list(places), set(places)
    while pending:
        for child in world.children.get(pending.pop(), ()):
            stage = world.artifacts[child].artifact.spec.stage
            if child not in seen and stage.startswith(("science.", "evals.trial_result", "evals.result")):
                seen.add(child)
                pending.append(child)
                if stage in ("science.forecast", "science.ladder_forecast", "science.verdict"):
                    forecasts[child] = None
    return [(names.artifact(place),) for place in sorted(forecasts)]


def _loss(one: SiteArtifact) -> tuple[str, str]:
    facts = mapping(one.artifact.manifest.extra.get("checkpoint"))
    return ("withheld", "withheld") if one.withheld else (shown(facts.get("step")), shown(number(facts.get("loss_nats"))))


def _step(one: SiteArtifact) -> tuple[float, str, Place]:
    step = number(mapping(one.artifact.spec.config).get("step"))
    return -1.0 if step is None else step, one.artifact.manifest.created, one.place
