"""Acts 3 to 5: the audit of Bison, the leak's effect on its surprisal, Mantis, and both histories in one picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node, resolve
from lineage.match_tiers import STANDING_TIERS
from marin_assets.cli.lineage_picture import html_page
from scenarios import nodes
from scenarios.surprisal import (
    FORMS,
    PARTS,
    Estimate,
    Measured,
    bits_per_byte,
    contrast,
    measure_all,
    paired_difference,
    paired_part_difference,
)
from scenarios.witness import READ, audited_reads, logged_reads, reads_from_order
from scenarios.world import World
from serving.tokenization import open_tokenizer
from trainer.scoring import load_scorer

AUDITED, SURPRISED, MANTIS, PICTURE = (
    "3a The audit of Bison", "3b Surprisal, Bison against its clean twin", "4 Mantis", "5 Both histories",
)  # fmt: skip
LISTED = 6


def audit_bison(world: World, of: Node) -> pl.DataFrame:
    """Act 3a: find the items and the steps that read them in three ways that share only the data order. Returns the reads."""
    say = world.teller.say
    world.teller.act(AUDITED)
    audit, bison = world.make(nodes.audit(world.before, of), of)
    summary = audit.manifest.extra["audit"]
    matched = set(_matched(audit)["item_id"])
    leaked = {item.item_id for item in world.leaked}
    say(AUDITED, "the audit calls Bison contaminated, and names every item of test.json",
        f"verdict {summary['verdict_at_step']}; {len(matched & leaked)} of {len(leaked)} leaked items named, "
        f"{len(matched - leaked)} others; {summary['verified_exposures']} reads found again in their batches",
        summary["verdict_at_step"] == "contaminated" and leaked <= matched)  # fmt: skip
    scores = summary["scores"]["by_task"]["gsm8k"]
    changed = ", ".join(
        f"{name.replace('_', ' ')} {scores[name][0]:+.3f} ({scores[name][1]:+.3f} to {scores[name][2]:+.3f})"
        for name in ("seen_since_start", "clean_since_start", "seen_less_clean_since_start")
        if name in scores
    )
    say(AUDITED, "it says what the leak changed in the scores, item by item since the base", f"{changed} bits per byte",
        "seen_less_clean_since_start" in scores)  # fmt: skip
    reads = audited_reads(audit)
    say(AUDITED, "it says at which steps each was seen", _listed(reads), set(reads["item_id"]) == matched)
    asked_for = reads_from_order(bison, [item for item in (*world.leaked, *world.control) if item.item_id in matched])
    listed = reads.filter(pl.col("item_id").is_in(asked_for["item_id"].unique().implode()))
    logged = logged_reads(bison, reads["id"].unique().to_list())
    agree = asked_for.equals(listed) and logged.equals(reads.select(READ).unique().sort(READ))
    say(AUDITED, "`marin exposure` and a log of every batch, read forward, name the same reads",
        f"{reads.height:,} reads audited, {asked_for.height:,} asked for, {logged.height:,} (document, row) pairs logged",
        agree)  # fmt: skip
    return reads


def _matched(audit: Artifact) -> pl.DataFrame:
    """Items with a standing match among the trained documents that a step has read."""
    table = pl.read_parquet(audit.files("items.parquet")[0])
    return table.filter(pl.col("tier_after").is_in(STANDING_TIERS) & (pl.col("num_exposures") > 0))


def _listed(reads: pl.DataFrame) -> str:
    by_item = reads.group_by("item_id").agg(pl.col("step").unique().sort()).sort("item_id")
    lines = [
        f"gsm8k/{item}: {len(steps)} steps, {', '.join(map(str, steps[:LISTED]))}{', ...' if len(steps) > LISTED else ''}"
        for item, steps in by_item.head(LISTED).iter_rows()
    ]
    return "\n".join([*lines, f"... {by_item.height} items in all" if by_item.height > LISTED else ""]).strip()


@dataclass(frozen=True)
class Difference:
    """Bison minus its clean twin on one form of one group of items."""

    form: str
    group: str
    bison: Estimate
    twin: Estimate
    difference: Estimate


def measure_surprisal(world: World, checkpoints: Mapping[str, Artifact]) -> tuple[Measured, list[Difference]]:
    """Act 3b: bits per byte of the answers in both forms. Only the leaked form must show the leak."""
    say = world.teller.say
    world.teller.act(SURPRISED)
    tokenizer, start = open_tokenizer(resolve(world.store, nodes.tokenizer(world.before)), world.scale.vocab_size)
    items = [*world.leaked, *world.control]
    scorers = {name: load_scorer(checkpoint) for name, checkpoint in checkpoints.items()}
    measured = measure_all(scorers, tokenizer, start, items)
    groups = {"leaked": np.arange(len(items)) < len(world.leaked), "control": np.arange(len(items)) >= len(world.leaked)}
    differences = [
        Difference(
            form,
            group,
            bits_per_byte(measured["bison", form], which),
            bits_per_byte(measured["clean twin", form], which),
            paired_difference(measured["bison", form], measured["clean twin", form], which),
        )
        for form in FORMS
        for group, which in groups.items()
    ]
    for each in differences:
        differences_line = (
            f"bison {each.bison:.3f}, clean twin {each.twin:.3f}, difference {each.difference:+.3f} bits per byte (95 %)"
        )
        say(SURPRISED, f"{each.form} form, {each.group} items", differences_line)
    for form in FORMS:
        leak = leak_itself(measured, len(world.leaked), form)
        claim = f"{form} form: the difference of leaked items less that of control items, which no training file holds"
        own = form == "OLMES" and world.scale.judges_leak
        full_claim = claim + (": the leak itself shows" if own else "")
        say(SURPRISED, full_claim, f"{leak:+.3f} bits per byte (95 %)", leak.high < 0 if own else None)
    say(SURPRISED, "what does not follow", WHAT_DOES_NOT_FOLLOW)
    for part in PARTS:
        both = {
            group: paired_part_difference(measured["bison", "lm-eval"], measured["clean twin", "lm-eval"], which, part)
            for group, which in groups.items()
        }
        differences_line = ", ".join(f"{group} {each:+.3f}" for group, each in both.items())
        say(SURPRISED, f"lm-eval form, {part} alone, Bison minus clean twin", f"{differences_line} bits a token (95 %)")
    [lm_eval] = [each.difference for each in differences if (each.form, each.group) == ("lm-eval", "leaked")]
    say(SURPRISED, "is Bison more surprised than the clean twin by lm-eval's text of the leaked items?", answer(lm_eval))
    cut = sum(each.truncated for each in measured.values())
    say(SURPRISED, "prompts cut to fit the context", f"{cut} of {len(measured) * len(items)}")
    return measured, differences


WHAT_DOES_NOT_FOLLOW = (
    "Bison minus twin on leaked items alone is no measure of the leak: Bison also read the form of these texts, and control "
    "items in that form show most of the same difference. One pair of runs, one key each, says nothing about other keys."
)


def leak_itself(measured: Measured, num_leaked: int, form: str) -> Estimate:
    """Difference between Bison and its clean twin on leaked items, minus the same on control items."""
    bison, twin = measured["bison", form], measured["clean twin", form]
    leaked = np.arange(bison.bits.size) < num_leaked
    return contrast(bison, twin, leaked, ~leaked)


def answer(difference: Estimate) -> str:
    """Return yes, no or not shown, by the interval."""
    if difference.low > 0:
        return f"yes, by {difference:+.3f} bits per byte"
    if difference.high < 0:
        return f"no: it is surprised less, by {difference:+.3f} bits per byte"
    return f"not shown either way: {difference:+.3f} bits per byte"


def audit_mantis(world: World) -> Artifact:
    """Act 4: the same warm start with the clean mix and the default permutation."""
    say = world.teller.say
    world.teller.act(MANTIS)
    of = nodes.mantis(world.after)
    mantis, audit, base = world.make(of, nodes.audit(world.after, of), nodes.base(world.before))
    summary = audit.manifest.extra["audit"]
    same = mantis.input("start").spec.address == base.spec.address
    say(MANTIS, "Mantis starts from the checkpoint that Bison started from", mantis.input("start").name, same)
    shuffles = [resolve(world.store, node.inputs["mixture"]).manifest.extra["mixture"]["shuffle"]  # pyrefly: ignore
                for node in (nodes.bison(world.before), of)]  # fmt: skip
    say(MANTIS, "and reads by another permutation", " > ".join(shuffles), shuffles == ["linear", "splitmix"])
    summary_line = (
        f"verdict {summary['verdict']}; {summary['counts']['matched_after']} items matched of {summary['counts']['items']:,}"
    )
    say(MANTIS, "its audit is clean", summary_line, summary["verdict"] == "clean")
    return mantis


def draw_histories(world: World, ends: Sequence[Artifact], path: Path) -> list[Artifact]:
    """Act 5: all ancestors of both audits on one page."""
    world.teller.act(PICTURE)
    walked = {a.spec.address: a for end in ends for a in world.store.walk_up(end)}
    artifacts = list(walked.values())
    path.write_text(html_page(artifacts, "Bison and Mantis: two histories of one base"), encoding="utf-8")
    starts = {a.name: a.input("start").name for a in artifacts if any(ref.name == "start" for ref in a.spec.inputs)}
    both = len(starts) == 2 and len(set(starts.values())) == 1
    starts_line = "; ".join(f"{start} > {name}" for name, start in starts.items())
    world.teller.say(PICTURE, f"one picture holds both: {path.name}, {len(artifacts)} artifacts", starts_line, both)
    return artifacts
