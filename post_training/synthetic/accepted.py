"""The stage `synthetic.accepted`: rollouts that a verifier or judge accepts, without duplicates, as files of a source.

Every rollout is either a row of `accepted.parquet` or a row of `dropped.parquet` with its reason. The files of the source
(`files/accepted.jsonl`) name rollout, prompt, teacher and verifier of each document, so the audit finds them again.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import polars as pl

from lineage.accepted_rows import ACCEPTED_FILE, ACCEPTED_SCHEMA
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer
from post_training.environments.prompt import Prompt, Verdict
from post_training.environments.table import read_prompts
from post_training.synthetic.claims import forget
from post_training.synthetic.duplicates import duplicates_of
from post_training.synthetic.judging import grades
from post_training.synthetic.rollouts import ROLLOUTS_FILE, SYNTHETIC_ROLLOUTS
from post_training.synthetic.spec import AcceptConfig

DROPPED_FILE, SOURCE_FILE = "dropped.parquet", "files/accepted.jsonl"
DROPPED_SCHEMA = {"rollout": pl.String, "prompt_id": pl.String, "reason": pl.String, "detail": pl.String}
JUDGE_CONCURRENCY, JUDGE_PATIENCE = 16, 600.0


@dataclass
class _Row:
    """One rollout on its way through the filters; `reason` is set by the first that drops it."""

    prompt: Prompt
    shard: str
    facts: dict
    reason: str = ""
    detail: str = ""
    grade: int | None = None

    @property
    def name(self) -> str:
        return self.facts["rollout"]

    @property
    def text(self) -> str:
        return self.facts["text"]

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation: that of an agent, or prompt and completion."""
        if self.facts["messages"]:
            return json.loads(self.facts["messages"])
        return [{"role": "user", "content": self.prompt.text}, {"role": "assistant", "content": self.text}]

    @property
    def teacher_text(self) -> str:
        """All that the teacher wrote."""
        return "\n".join(message["content"] for message in self.messages if message["role"] == "assistant")

    def drop(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail


def accept(out: Writer, config: AcceptConfig, environment: Artifact, rollouts: tuple[Artifact, ...]) -> None:
    """Write `accepted.parquet`, `dropped.parquet` and the files of the source.

    The working records of the shards are deleted. Raises: ValueError if a shard is missing or of other prompts, or nothing is
    accepted.
    """
    rows = _read(environment, rollouts)
    for row in rows:
        if row.facts["fault"]:
            row.drop("refused by the teacher", row.facts["fault"])
        elif not row.text.strip():
            row.drop("empty")
        elif config.truncated == "drop" and row.facts["finish_reason"] == "length":
            row.drop("truncated")
    if config.verifier == "environment":
        _verified(environment, rows)
    if config.judge is not None:
        _graded(config, rows)
    _without_duplicates(config, rows)
    kept = [row for row in rows if not row.reason]
    drops = Counter(row.reason for row in rows if row.reason)
    if not kept:
        raise ValueError(f"{out.spec.name}: nothing is accepted of {len(rows)} rollouts; dropped: {dict(drops)}")
    _write(out, config, environment, rows)
    for shard in rollouts:
        forget(out.store.storage, shard.spec.version)
    out.extra["synthetic"] = {"accepted": len(kept), "dropped": dict(drops.most_common()), "accept": asdict(config)}
    out.record(rows_in=len(rows), rows_out=len(kept), drops=dict(drops))


def document_of(prompt: Prompt, text: str) -> str:
    """Return the text that a student reads: prompt and completion."""
    return prompt.text + text


def _read(environment: Artifact, rollouts: tuple[Artifact, ...]) -> list[_Row]:
    """Return every rollout in the order of prompts and samples. Raises: ValueError for shards that do not belong together."""
    prompts = {prompt.prompt_id: prompt for prompt in read_prompts(environment, "train")}
    for shard in rollouts:
        if shard.spec.stage != SYNTHETIC_ROLLOUTS.name:
            raise ValueError(f"{shard.name} was made by {shard.spec.stage}; give shards of {SYNTHETIC_ROLLOUTS.name}")
        if shard.input("environment").data_version != environment.data_version:
            raise ValueError(f"{shard.name} answers prompts of another environment than {environment.name}; make it again")
    shards = sorted(int(str(shard.spec.config["shard"])) for shard in rollouts)
    wanted = int(str(rollouts[0].spec.config["shards"]))
    if shards != list(range(wanted)):
        raise ValueError(f"the set has the shards {shards} of {wanted}; every shard must be given once")
    rows = []
    for shard in rollouts:
        for facts in pl.read_parquet(shard.file(ROLLOUTS_FILE)).iter_rows(named=True):
            rows.append(_Row(prompts[facts["prompt_id"]], shard.spec.address, facts))
    return sorted(rows, key=lambda row: (row.prompt.prompt_id, row.facts["sample"]))


def _left(rows: Sequence[_Row]) -> list[_Row]:
    return [row for row in rows if not row.reason]


def _verified(environment: Artifact, rows: Sequence[_Row]) -> None:
    from post_training.environments.verify import verifier_of, verify  # it loads JAX, which the graph does without

    left = _left(rows)
    verdicts: list[Verdict] = verify(verifier_of(environment), [row.prompt for row in left], [row.text for row in left])
    for row, verdict in zip(left, verdicts, strict=True):
        row.detail = verdict.detail
        if verdict.outcome == "failed":
            row.drop("verifier failed", verdict.detail)
        elif verdict.outcome == "wrong":
            row.drop("wrong", verdict.detail)


def _graded(config: AcceptConfig, rows: Sequence[_Row]) -> None:
    judge, left = config.judge, _left(rows)
    assert judge is not None
    by_name = grades(judge, [(row.name, row.prompt.text, row.text) for row in left], JUDGE_CONCURRENCY, JUDGE_PATIENCE)
    for row in left:
        row.grade = by_name[row.name].grade
        if row.grade is None:
            row.drop("the judge gave no grade", by_name[row.name].text[:500])
        elif row.grade < judge.least:
            row.drop("graded too low", f"{row.grade}: {by_name[row.name].text}"[:500])


def _without_duplicates(config: AcceptConfig, rows: Sequence[_Row]) -> None:
    left = _left(rows)
    documents = [document_of(row.prompt, row.teacher_text) for row in left]
    duplicates = duplicates_of(documents, [row.teacher_text for row in left], config.min_jaccard)
    for place, (kept, kind) in duplicates.items():
        left[place].drop(f"{kind} duplicate", left[kept].name)


def _write(out: Writer, config: AcceptConfig, environment: Artifact, rows: Sequence[_Row]) -> None:
    spec = environment.spec
    judged = "" if config.judge is None else f"judge {config.judge.model}"
    verifier = f"{spec.stage}@{spec.stage_version}" if config.verifier == "environment" else judged
    kept = [
        {
            "rollout": row.name,
            "prompt_id": row.prompt.prompt_id,
            "shard": row.shard,
            "environment": spec.address,
            "verifier": verifier,
            "teacher_model": row.facts["teacher_model"],
            "teacher_version": row.facts["teacher_version"],
            "detail": row.detail,
            "grade": row.grade,
        }
        for row in rows
        if not row.reason
    ]
    dropped = [(row.name, row.prompt.prompt_id, row.reason, row.detail) for row in rows if row.reason]
    pl.DataFrame(kept, schema=ACCEPTED_SCHEMA).write_parquet(out.folder / ACCEPTED_FILE, compression="zstd")
    table = pl.DataFrame(dropped, schema=DROPPED_SCHEMA, orient="row")
    table.write_parquet(out.folder / DROPPED_FILE, compression="zstd")
    (out.folder / SOURCE_FILE).parent.mkdir()
    with (out.folder / SOURCE_FILE).open("w") as file:
        for row, facts in zip(_left(rows), kept, strict=True):
            file.write(json.dumps(_record(row, facts), ensure_ascii=False) + "\n")


def _record(row: _Row, facts: dict) -> dict:
    """Return a line of the source: the text, the same as messages, and where it came from."""
    named = {name: facts[name] for name in ("rollout", "prompt_id", "verifier", "teacher_model", "teacher_version")}
    return {"id": row.name, "text": document_of(row.prompt, row.teacher_text), "messages": row.messages, **named}


SYNTHETIC_ACCEPTED = Stage(
    "synthetic.accepted",
    "1",
    accept,
    description="Rollouts that a verifier or judge accepts, without duplicates; every drop with its reason.",
    checks=("file_set", "rows_conserved"),
)
