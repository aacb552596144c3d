"""Tasks with several sampled answers to each item: pass@k for k from 1 to the number of samples."""

import json
from collections.abc import Sequence

from evals.items.item import Item
from evals.items.prompts import policy_name, render
from evals.items.stage import TaskSpec
from evals.items.task import Task
from evals.items.tasks.registry import task_named
from evals.sandbox.run import Limits
from evals.scoring.pass_at_k import PassCurve, pass_curve
from evals.scoring.records import EvalRecord, Score
from evals.scoring.statistics import share_score
from evals.tasks.generation import Judged, judge
from evals.tasks.generator import Generated, TextGenerator
from lineage.storage.digests import text_digest
from serving.server.sampling import Sampling


def evaluate_samples(
    generator: TextGenerator,
    spec: TaskSpec,
    items: Sequence[Item],
    checkpoint: str,
    seed: int,
    shots: Sequence[Item] = (),
    limits: Limits | None = None,
    task: Task | None = None,
) -> tuple[list[Score], list[EvalRecord], PassCurve]:
    """Sample `spec.samples` answers to every item and judge each: `pass_at_k`, the shares of unparsed and cut-off texts.

    A sample without an answer is a wrong one. An item has one record: its texts, its seed, and the verdict on each sample;
    `correct` says whether more than half of the samples are right. Raises: NoSandboxError.
    """
    task = task or task_named(spec.item_task)
    prompts = [render(item, spec.style, task.shots(item, shots, spec.num_shots), task).prompts[0] for item in items]
    seeds = [item_seed(seed, spec.name, item.item_id) for item in items]
    sampling = Sampling(spec.temperature, spec.top_p)
    generated = generator.sample(prompts, task.stops, spec.max_new_tokens, sampling, spec.samples, seeds)
    flat = [each for of_item in generated for each in of_item]
    verdicts = judge(task, spec, [item for item in items for _ in range(spec.samples)], flat, limits)
    grouped = [verdicts[first : first + spec.samples] for first in range(0, len(verdicts), spec.samples)]
    records = [
        _record(spec, item, checkpoint, prompt, item_seed, texts, judged)
        for item, prompt, item_seed, texts, judged in zip(items, prompts, seeds, generated, grouped, strict=True)
    ]
    right = [sum(bool(one.correct) for one in judged) for judged in grouped]
    curve = pass_curve(spec.name, spec.samples, right, seed)
    unparsed = sum(one.verdict == "unparsed" for one in verdicts)
    cut_off = sum(each.finish == "length" for each in flat)
    shares = [
        share_score(spec.name, "unparsed", unparsed, len(flat), len(flat)),
        share_score(spec.name, "cut_off", cut_off, len(flat), len(flat)),
    ]
    return [*curve.scores(), *shares], records, curve


def item_seed(seed: int, task: str, item_id: str) -> int:
    """Return the sampler's seed of an item, below 2^60: it depends on no other item."""
    return int(text_digest(f"{seed}\x1f{task}\x1f{item_id}")[:15], 16)


def _record(
    spec: TaskSpec,
    item: Item,
    checkpoint: str,
    prompt: str,
    seed: int,
    texts: Sequence[Generated],
    judged: Sequence[Judged],
) -> EvalRecord:
    right = sum(bool(one.correct) for one in judged)
    samples = [
        {"verdict": one.verdict, "correct": one.correct, "answer": one.answer, "finish": each.finish, "tokens": each.num_tokens}
        for one, each in zip(judged, texts, strict=True)
    ]
    facts = {"seed": seed, "temperature": spec.temperature, "top_p": spec.top_p, "right": right, "samples": samples}
    facts["truncated_tokens"] = max(each.truncated_tokens for each in texts)
    return EvalRecord(
        spec.name,
        item.item_id,
        f"{policy_name(spec.style, spec.num_shots)} x{spec.samples}",
        checkpoint,
        text_digest(prompt),
        json.dumps(facts, ensure_ascii=False),
        "graded",
        2 * right > len(judged),
        None,
        item.suite,
        item.source_digest,
        continuations=tuple(each.text for each in texts),
    )
