"""Acts 0 to 2: the incident, the fix under Marin's identity rules, and the fix in this lab."""

from pathlib import Path

import polars as pl

from datakit.sources.remote import folder_listing
from datakit.sources.source import FolderFiles, Unverified
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node, resolve, spec_of
from lineage.build.plan import build
from lineage.graph.affected import affected_by
from lineage.graph.edges import lineage_tables
from lineage.jobs.job import LaunchRequest
from lineage.trust.gate import GateError, inspect
from lineage.trust.verdicts import quarantine
from scenarios import nodes
from scenarios.bundle import TEST_FILE, leaked_text
from scenarios.marin_identity import cached_texts, leave_out_the_test_file, read_every_file, run_simulated, tokenized_step
from scenarios.nodes import BUNDLE
from scenarios.world import World, losses
from trainer.spec.stage import CHECKPOINT

HAPPENED, SIMULATED, HERE = "0 As it happened", "1 The fix under Marin's rules (a simulation)", "2 The fix in this lab"
RESUMED = "resumed.txt"
"""Log of the restarted job."""


def as_it_happened(world: World) -> Artifact:
    """Act 0: both files of the bundle become tokens, and Bison cools down on them with two defences switched off."""
    say = world.teller.say
    world.teller.act(HAPPENED)
    refusal = _refused_by_name(world)
    say(HAPPENED, "a glob over the bundle is refused: one of its files is a test split", refusal, TEST_FILE in refusal)
    claim = f"as it happened: {TEST_FILE} is named in full, which the lab takes for a decision"
    say(HAPPENED, claim, f"{len(world.leaked)} GSM8K test items in OLMES form, {world.scale.num_train_problems} clean problems")
    marks, default = world.make(
        nodes.contamination(world.before, BUNDLE), nodes.corpus(world.before, BUNDLE, as_it_happened=False)
    )
    marked = marks.manifest.extra["contamination"]["contaminated"]
    dropped = default.manifest.statistics["drops"].get("contaminated", 0)
    say(HAPPENED, "the lab's default corpus would have dropped every test item; the replay switches that off",
        f"{marked} documents marked, {dropped} dropped of {len(world.leaked)} in {TEST_FILE}",
        marked == len(world.leaked) and dropped > 0)  # fmt: skip
    base, bison = world.make(nodes.base(world.before), nodes.bison(world.before))
    say(HAPPENED, "base is trained on general text, Bison goes on from it on general text and the bundle",
        f"base {_loss_line(base)}; bison {_loss_line(bison)}")  # fmt: skip
    return bison


def _refused_by_name(world: World) -> str:
    loader = FolderFiles(str(world.bundle), ("*.json",), Unverified("", "not pinned yet"))
    try:
        folder_listing(loader, trainable=True, what=f"source {BUNDLE}")
    except ValueError as error:
        return str(error)
    return "nothing was refused"


def _loss_line(checkpoint: Artifact) -> str:
    loss = losses(checkpoint)
    return f"{loss.len()} steps, {loss[0]:.3f} > {loss[-10:].mean():.3f} nats a token"


def under_marins_rules(world: World) -> None:
    """Act 1: the fix changes a function's code, which no hash covers, so the old output counts as the new one."""
    say = world.teller.say
    world.teller.act(SIMULATED)
    prefix = world.folder / "simulated"
    tokenizer = resolve(world.store, nodes.tokenizer(world.before)).files("tokenizer.json")[0]
    before, after = (tokenized_step(world.bundle, tokenizer, fn) for fn in (read_every_file, leave_out_the_test_file))
    first, second = run_simulated(before, prefix), run_simulated(after, prefix)
    say(SIMULATED, "SIMULATION: before the fix the three steps run", f"ran {', '.join(first.ran)}", len(first.ran) == 3)
    same = first.output == second.output
    say(SIMULATED, "SIMULATION: the mended step has the same version, is found finished, and does not run",
        f"{first.output.name} before, {second.output.name} after; ran {', '.join(second.ran) or 'nothing'}, "
        f"skipped {', '.join(second.skipped)}", same and not second.ran)  # fmt: skip
    stale = _num_leaked(world, cached_texts(second, tokenizer))
    say(SIMULATED, f"SIMULATION: the cache that the next run reads still holds {TEST_FILE}",
        f"{stale} of {len(world.leaked)} test items are in it", stale == len(world.leaked))  # fmt: skip
    forced = run_simulated(after, Path(f"{prefix}-fresh"))
    fresh = _num_leaked(world, cached_texts(forced, tokenizer))
    say(SIMULATED, "SIMULATION: the fix itself was right; in an empty prefix it works", f"{fresh} test items", fresh == 0)


def _num_leaked(world: World, texts: list[str]) -> int:
    held = set(texts)
    return sum(leaked_text(item) in held for item in world.leaked)


def in_this_lab(world: World, bison: Artifact) -> pl.DataFrame:
    """Act 2: the file list is identity, so all its descendants get other addresses and the gate refuses the old ones.

    Returns one row for each stage: the old and the new address.
    """
    say = world.teller.say
    world.teller.act(HERE)
    refused = _refusal(world, nodes.bison(world.after))
    say(HERE, "after the fix a launch is refused: the raw files are stale, and the command that mends it is named", refused,
        f"stale: datakit/raw[{BUNDLE}]" in refused and "./marin materialize datakit/raw" in refused)  # fmt: skip
    old_raw = resolve(world.store, nodes.raw(world.before, BUNDLE))
    reached = affected_by(lineage_tables(world.store), [old_raw.spec.address])
    names = reached.rows["name"].to_list()
    say(HERE, "what the bad files have reached is listed, Bison's checkpoints among it",
        f"{reached.cost.num_artifacts} artifacts, {reached.cost.wall_seconds:.0f} s to make again: {', '.join(names)}",
        bison.name in names)  # fmt: skip
    world.make(*(nodes.token_cache(world.after, source) for source in (*world.scale.general, BUNDLE)))
    moved = _moved(world)
    changed = moved.filter(pl.col("address_before") != pl.col("address_after")).height
    say(HERE, "every address from the raw files to the token cache has changed", _lines(moved), changed == moved.height)
    _refuses_the_old_mixture(world, bison)
    return moved


def _moved(world: World) -> pl.DataFrame:
    """Address of every stage of the bundle before and after the fix."""
    rows = []
    for of in (nodes.raw, nodes.normalized, nodes.contamination, nodes.corpus, nodes.token_cache):
        old, new = (resolve(world.store, of(recipe, BUNDLE)) for recipe in (world.before, world.after))
        rows.append((old.name, old.spec.version, new.spec.version))
    return pl.DataFrame(rows, schema=["artifact", "address_before", "address_after"], orient="row")


def _lines(moved: pl.DataFrame) -> str:
    return "\n".join(f"{name:<32} {old[:12]} > {new[:12]}" for name, old, new in moved.iter_rows())


def _refuses_the_old_mixture(world: World, bison: Artifact) -> None:
    """Try a launch by today's recipe, and a resume of the old job file, at the gate."""
    say = world.teller.say
    refused = _refusal(world, nodes.bison(world.after))
    say(HERE, "with clean caches made, training on the old mixture is refused, with the reason and what mends it", refused,
        "stale: mixture/bison:" in refused and "`./marin materialize mixture/bison`" in refused)  # fmt: skip
    needs = CHECKPOINT.gate
    assert needs is not None
    findings = inspect(world.store, bison.spec.inputs, needs)
    claim = "a job file from before the fix froze its inputs, and their bytes are sound: alone, the gate lets it resume"
    say(HERE, claim, f"{len(findings)} findings")
    old_raw = resolve(world.store, nodes.raw(world.before, BUNDLE))
    quarantine(old_raw, f"{TEST_FILE} holds GSM8K test items", "bison")
    resumed = _resume(world, bison)
    say(HERE, "with the bad files quarantined, that resume is refused in the trainer's own process", resumed,
        f"quarantined: datakit/raw[{BUNDLE}]" in resumed)  # fmt: skip


def _refusal(world: World, node: Node) -> str:
    try:
        build(world.store, node, execution=world.execution, launcher=world.launcher)
    except GateError as error:
        return str(error)
    return f"{node.name} was not refused: it is {spec_of(world.store, node).address}"


def _resume(world: World, bison: Artifact) -> str:
    """Restart Bison's job file; returns the trainer's refusal."""
    job = world.store.scratch / "jobs" / bison.spec.version / "job.json"
    try:
        world.launcher(LaunchRequest("trainer", job, world.folder / RESUMED, bison.name, bison.spec.version))
    except RuntimeError as error:
        message = str(error)
        start = message.find("is refused")
        return message[max(0, message.rfind("\n", 0, start) + 1) :] if start >= 0 else message
    return "the trainer did not refuse"
