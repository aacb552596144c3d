"""All commands: the group, the place and one line of each. Their modules are imported when they run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command: its name, the `module:function` in `marin_assets.cli` that it runs, and what it does in one line."""

    name: str
    place: str
    summary: str


@dataclass(frozen=True)
class Group:
    """Commands that belong together."""

    title: str
    commands: tuple[Command, ...]


GROUPS = (
    Group(
        "Start here",
        (
            Command("ferry", "ferry:ferry", "text to a trained, evaluated, audited model: a day's smoke test"),
            Command("status", "status:status", "runs of the lab, what its stores hold, what it cost"),
            Command("list", "listing:list_artifacts", "artifacts with size, age and state"),
            Command("query", "query:query", "ask in SQL what ran, what it cost, what is kept"),
            Command("show", "listing:show", "one artifact: files, inputs, cost, facts"),
            Command("help", "explain:explain", "every command in one line"),
        ),
    ),
    Group(
        "Make",
        (
            Command("train", "train:train", "own text to a trained, evaluated and audited model"),
            Command("init", "train:init", "a recipe file for own text, or a new lab"),
            Command("materialize", "materialize:materialize", "make an asset and everything that it lacks"),
            Command("canary", "ferry:canary", "make a day's canary"),
            Command("serve", "serve:serve", "serve a checkpoint over OpenAI's API"),
            Command("ui", "ui:ui", "the graph, runs and checks in a browser"),
        ),
    ),
    Group(
        "Contamination and trust",
        (
            Command("audit", "audit:audit", "the contamination audit of a checkpoint"),
            Command("holders", "holders:holders", "documents that hold a benchmark item"),
            Command("gate", "gate:gate", "whether an artifact is fit to build on"),
            Command("waive", "gate:waive", "allow what a check holds back, until a day"),
            Command("revoke", "gate:revoke", "end a waiver before its day"),
            Command("quarantine", "gate:quarantine", "take an artifact out of use"),
            Command("verdicts", "gate:verdicts", "the log of verdicts, and its faults"),
        ),
    ),
    Group(
        "Lineage",
        (
            Command("lineage", "show_lineage:lineage", "what an artifact was made from, or what from it"),
            Command("exposure", "exposure:exposure", "at which steps a checkpoint saw documents"),
            Command("affected", "affected:affected", "what a bad artifact, stage or document has reached"),
            Command("reproduce", "show_lineage:reproduce", "make an artifact again and compare its bytes"),
            Command("verify", "verify:verify", "make drifted artifacts again and compare"),
            Command("consistency", "consistency:consistency", "compare manifests, tables and event log"),
            Command("rebuild-event-log", "consistency:rebuild_event_log", "make Dagster's event log again"),
        ),
    ),
    Group(
        "Signatures and exports",
        (
            Command("export", "commands_signing:export", "a model or corpus for others, with provenance"),
            Command("site", "site:site", "the lab's public site, as static pages"),
            Command("key", "commands_signing:key", "the public key that this machine signs with"),
            Command("sign", "commands_signing:sign", "sign an artifact, or add your signature"),
            Command("log", "commands_signing:log", "append to the transparency log"),
            Command("openlineage", "commands_signing:openlineage", "send OpenLineage events"),
            Command("metrics", "metrics:metrics", "the ledger for Prometheus"),
        ),
    ),
    Group(
        "Evaluation",
        (
            Command("leaderboard", "leaderboard:leaderboard", "every evaluation result, ranked"),
            Command("compare", "leaderboard:compare", "two results item by item"),
            Command("gap", "leaderboard:gap", "where one checkpoint finds text harder than another"),
        ),
    ),
    Group(
        "What is declared",
        (
            Command("sources", "declared:sources", "the source catalogue"),
            Command("spec", "declared:spec", "a declared run as a spec file"),
            Command("heldout", "declared:heldout", "held-out text of a declared run"),
            Command("histories", "histories:histories", "declared runs of the retrospectives"),
            Command("plan-run", "show_run_plan:plan_run", "plan a large run on paper"),
            Command("plan-data", "show_data_plan:plan_data", "plan the data engine for a whole catalogue"),
        ),
    ),
    Group(
        "Stores",
        (
            Command("purge", "purge:app", "free storage without losing what something needs"),
            Command("storage", "storage:app", "what the roots hold, copies between roots, rules of buckets"),
            Command("upgrade", "upgrade:upgrade", "bring an old store to today's formats"),
        ),
    ),
)

COMMANDS = {command.name: command for group in GROUPS for command in group.commands}
