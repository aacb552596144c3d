"""Synthetic sets: every rollout is accepted or dropped with a reason, and every accepted row is traced by one query."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from chat_stub import chatting
from small_rewards import environment, node, store_at
from small_synthetic import ACCEPT, BASE, accepted_node, built, judging, shard_config, shard_node, teaching, trained_teacher

from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.documents.parts import read_documents
from datakit.sources.raw import RAW
from datakit.text.shingles import jaccard, shingle_hashes
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import build
from marin_assets.cli.query import ledger_of_stores
from marin_assets.synthetic_views import accepted as accepted_view
from operations.ledger.database import opened, query
from operations.ledger.questions import QUESTIONS
from post_training.environments.table import read_prompts
from post_training.synthetic.duplicates import duplicates_of
from post_training.synthetic.rollouts import ROLLOUTS_FILE
from post_training.synthetic.spec import AcceptConfig, Judge, Teacher
from recipes.sources_studies import synthetic_source

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, quick_compilation: None) -> Iterator[tuple[Store, Node]]:
    """A set of two shards by the project's server, of which a judge accepts about half."""
    store = store_at(tmp_path_factory.mktemp("synthetic"))
    with teaching(store) as url, judging() as judge:
        accept = replace(ACCEPT, judge=replace(ACCEPT.judge, url=judge))
        accepted = accepted_node(shard_config(url), node(BASE), accept)
        built(store, accepted)
        yield store, accepted


def shards_of(accepted: Artifact) -> list[Artifact]:
    return [accepted.input(ref.name) for ref in accepted.spec.inputs if ref.name.startswith("rollouts")]


def rows(accepted: Artifact, name: str) -> pl.DataFrame:
    return pl.read_parquet(accepted.file(f"{name}.parquet"))


def test_one_query_joins_every_accepted_row_to_teacher_prompt_and_verifier(made: tuple[Store, Node]) -> None:
    store, accepted = made[0], resolve(*made)
    kept = rows(accepted, "accepted").sort("rollout")
    with opened(ledger_of_stores([store])) as connection:
        found = query(connection, QUESTIONS["synthetic-rows"].sql)
    assert len(found) == len(kept) > 10
    assert found["rollout"].to_list() == kept["rollout"].to_list()
    assert set(found["teacher_digest"]) == {trained_teacher(store).data_version}
    assert set(found["prompts"]) == {resolve(store, environment()).data_version}
    assert set(found["verifier"]) == {"judge stub"}
    prompts = {each.prompt_id for each in read_prompts(resolve(store, environment()), "train")}
    assert set(found["prompt_id"]) <= prompts


def test_the_ledger_says_how_many_rollouts_of_each_shard_are_used(made: tuple[Store, Node]) -> None:
    store, accepted = made[0], resolve(*made)
    kept = dict(rows(accepted, "accepted")["shard"].value_counts().iter_rows())
    with opened(ledger_of_stores([store])) as connection:
        found = query(connection, QUESTIONS["rollouts"].sql).filter(run="synthetic/sums").sort("iteration")
    shards = shards_of(accepted)
    assert found["rows"].sum() == 60 and found["iteration"].to_list() == [0, 1]
    assert found["used"].to_list() == [kept[each.spec.address] for each in shards]
    assert set(found["policy"]) == set(rows(accepted, "accepted")["teacher_version"])


def test_every_rollout_is_accepted_once_or_dropped_once(made: tuple[Store, Node]) -> None:
    accepted = resolve(*made)
    shards = [pl.read_parquet(each.file(ROLLOUTS_FILE)) for each in shards_of(accepted)]
    asked = pl.concat(shards)["rollout"]
    kept, dropped = rows(accepted, "accepted")["rollout"], rows(accepted, "dropped")
    assert len(asked) == 60 and asked.n_unique() == 60
    assert sorted([*kept, *dropped["rollout"]]) == sorted(asked)
    statistics = accepted.manifest.statistics
    assert statistics["drops"] == dict(dropped["reason"].value_counts().iter_rows())
    assert "graded too low" in statistics["drops"]
    assert not any((Path(made[0].root) / ".work" / "synthetic").iterdir()), "records of committed shards are deleted"
    assert str(accepted_view(accepted)["dropped_samples"].value).count("\n") >= 3


def test_a_document_of_the_source_names_its_rollout(made: tuple[Store, Node]) -> None:
    store, accepted = made
    source = synthetic_source("sums", "sums", "math", "CC0-1.0")
    raw = Node(("datakit", "raw"), "sums", RAW, source, {"accepted": accepted})
    config = NormalizeConfig("sums", source.format, source.domain)
    documents = read_documents(built(store, Node(("datakit", "normalized"), "sums", NORMALIZE, config, {"raw": raw})))
    named = [json.loads(metadata) for metadata in documents["metadata"]]
    kept = rows(resolve(store, accepted), "accepted")
    assert sorted(each["rollout"] for each in named) == sorted(kept["rollout"])
    assert {each["teacher_version"] for each in named} == set(kept["teacher_version"])


def test_a_shard_is_the_same_whoever_serves_the_teacher(made: tuple[Store, Node], tmp_path: Path) -> None:
    """The URL is no part of the identity, and completions depend on their seeds alone."""
    shards = shards_of(resolve(*made))
    other = store_at(tmp_path)
    with teaching(other) as url:
        again = built(other, shard_node(shard_config(url, concurrency=3, claim_seconds=5.0), node(BASE)))
    assert any((tmp_path / ".work" / "synthetic").iterdir()), "records stay until every shard is committed"
    first = next(each for each in shards if each.spec.partition == again.spec.partition)
    assert again.spec.version == first.spec.version and again.data_version == first.data_version


def test_a_server_with_another_checkpoint_is_refused(made: tuple[Store, Node]) -> None:
    store, _ = made
    other = replace(BASE, run=replace(BASE.run, name="other", seed=9))
    with teaching(store) as url, pytest.raises(ValueError, match="the teacher of others is"):
        built(store, shard_node(shard_config(url, name="others"), node(other)))


def answers(messages: list[dict]) -> str | int:
    """Right for even sums, wrong for odd ones, silent or refusing for some."""
    left, right = messages[0]["content"].removesuffix("=").split("+")
    if left == "0":
        return " \n"
    if left == "1":
        return 400
    return f"{int(left) + int(right):02d}" if (int(left) + int(right)) % 2 == 0 else "99"


def test_each_drop_has_its_reason(tmp_path: Path) -> None:
    """A teacher known by its URL alone: its rows are judged by the environment's verifier."""
    store = store_at(tmp_path)
    with chatting(answers) as stub:
        config = shard_config(stub.url, teacher=Teacher("stub", stub.url, "chat"), most_prompts=None, name="by_url")
        accepted = built(store, accepted_node(config, None, AcceptConfig()))
        asked = {body["messages"][0]["content"] for body in stub.bodies}
    kept, dropped = rows(accepted, "accepted"), rows(accepted, "dropped")
    train = read_prompts(resolve(store, environment()), "train")
    assert asked == {prompt.text for prompt in train}  # none is held out
    even = [p.prompt_id for p in train if p.text[0] not in "01" and sum(map(int, p.prompt_id.split("+"))) % 2 == 0]
    assert sorted(kept["rollout"]) == sorted(f"{name}#0" for name in even)
    assert set(kept["verifier"]) == {"environments.addition@1"}
    reason = dict(dropped.select("rollout", "reason").iter_rows())
    for prompt in train:
        expected = {"0": "empty", "1": "refused by the teacher"}.get(prompt.text[0])
        if expected is None:
            expected = "equal duplicate" if prompt.prompt_id in even else "wrong"
        assert reason[f"{prompt.prompt_id}#1"] == expected
    with opened(ledger_of_stores([store])) as connection:
        assert set(query(connection, QUESTIONS["synthetic-rows"].sql)["teacher_digest"]) == {"unknown"}


@pytest.mark.parametrize(
    ("fingerprint", "version"),
    [("vllm-0.19.0-tp8-a3b21f94", ""), ("5f3c1e0", "5f3c1e0")],
)
def test_a_teacher_behind_vllm_has_the_version_that_its_operator_sets(fingerprint: str, version: str, tmp_path: Path) -> None:
    """Its card reports none, and by default its answers say how it was configured."""
    with chatting(lambda messages: "1") as stub:
        stub.fingerprints = itertools.repeat(fingerprint)
        made = built(store_at(tmp_path), vllm_shard(stub.url))
    assert set(pl.read_parquet(made.file(ROLLOUTS_FILE))["teacher_version"]) == {version}
    assert made.manifest.extra["synthetic"]["teacher_version"] == version


def test_a_teacher_that_changes_its_version_is_refused(tmp_path: Path) -> None:
    with chatting(lambda messages: "1") as stub:
        stub.fingerprints = itertools.chain(["5f3c1e0"] * 5, itertools.repeat("77aa0b2"))
        with pytest.raises(ValueError, match=r"answers with .*(5f3c1e0|77aa0b2)|in version 5f3c1e0, and item .* 77aa0b2"):
            built(store_at(tmp_path), vllm_shard(stub.url))


def vllm_shard(url: str) -> Node:
    """A shard of four prompts, asked one after another."""
    config = shard_config(url, teacher=Teacher("stub", url, "chat"), most_prompts=4, shards=1, unit_prompts=2, concurrency=1)
    return shard_node(config, None)


def test_a_missing_shard_and_a_set_without_a_right_answer_are_refused(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    with chatting(lambda messages: "no") as stub:
        config = shard_config(stub.url, teacher=Teacher("stub", stub.url, "chat"), most_prompts=4, unit_prompts=2)
        whole = accepted_node(config, None, AcceptConfig())
        with pytest.raises(ValueError, match=r"nothing is accepted of 8 rollouts; dropped: \{'wrong': 8\}"):
            built(store, whole)
        first = {**whole.inputs, "rollouts": whole.inputs["rollouts"][:1]}
        with pytest.raises(ValueError, match=r"shards \[0\] of 2"):
            build(store, replace(whole, inputs=first))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: shard_config("", samples=0), "synthesis.samples is 0"),
        (lambda: shard_config("", temperature=0.0), "1 for greedy completions"),
        (lambda: shard_config("", shard=2), "synthesis.shard is 2"),
        (lambda: AcceptConfig("none"), "something must judge"),
        (lambda: Judge("j", " "), "judge.instruction"),
        (lambda: Judge("j", "x", 6), "judge.least is 6"),
        (lambda: Teacher(""), "teacher.model"),
    ],
)
def test_settings_that_cannot_work_are_refused(make, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_planted_near_duplicates_are_found() -> None:
    """400 texts of 60 words, each with a copy of which a word is replaced: recall at J >= .8 against all pairs."""
    words = np.random.default_rng(0).integers(0, 5000, (400, 60)).astype(str)
    copies = words.copy()
    copies[np.arange(400), np.random.default_rng(1).integers(0, 60, 400)] = "planted"
    texts = [" ".join(row) for row in (*words, *copies)]
    similar = [jaccard(shingle_hashes(texts[n], 5), shingle_hashes(texts[400 + n], 5)) >= 0.8 for n in range(400)]
    found = duplicates_of(texts, texts, 0.8)
    assert sum(similar) >= 390
    caught = sum(found.get(400 + number) == (number, "near") for number in range(400) if similar[number])
    assert caught >= 0.99 * sum(similar)
    assert all(similar[place - 400] for place in found)  # nothing else is dropped


def test_short_answers_to_different_prompts_are_no_duplicates() -> None:
    found = duplicates_of(["1+2=03", "2+1=03", "1+2=03"], ["03", "03", "03"], 0.8)
    assert found == {2: (0, "equal")}
