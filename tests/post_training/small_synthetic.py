"""A small synthetic set in a store of a test: one-digit sums, a teacher on loopback, a judge by rule."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from chat_stub import chatting
from served_models import serving
from small_rewards import base, environment, node, tokenizer

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import build_all
from lineage.jobs.job import LaunchRecord, LaunchRequest, read_job
from post_training.synthetic.accepted import SYNTHETIC_ACCEPTED
from post_training.synthetic.rollouts import SYNTHETIC_ROLLOUTS
from post_training.synthetic.spec import AcceptConfig, Judge, ShardConfig, Teacher, shard_partition
from post_training.train import train_on_rewards
from serving.server.loaded_model import open_served

SERVED = "teacher"
BASE = base()
ACCEPT = AcceptConfig("none", Judge("stub", "Look at whether it is an answer."), truncated="keep")


def trained_teacher(store: Store) -> Artifact:
    """The checkpoint of a run of four steps: what it says is noise, and its lineage is real."""
    return build_all(store, [node(BASE)], launcher=here)[0]


def here(launch: LaunchRequest) -> LaunchRecord:
    train_on_rewards(read_job(launch.job_path))
    return LaunchRecord("this process", "", ())


@contextmanager
def teaching(store: Store) -> Iterator[str]:
    """The project's server on the teacher's checkpoint; yields its URL."""
    served = open_served(trained_teacher(store), resolve(store, tokenizer()), SERVED)
    with serving(served) as client:
        yield client.url("")


@contextmanager
def judging() -> Iterator[str]:
    """A judge that finds every other completion good, by the bytes of the answer."""
    with chatting(lambda messages: "Fine. [[5]]" if len(messages[0]["content"]) % 2 else "Bad. [[2]]") as stub:
        yield stub.url


def shard_config(url: str, **changes) -> ShardConfig:
    config = ShardConfig(
        "sums", Teacher(SERVED, url), samples=2, max_tokens=4, shards=2, unit_prompts=8, most_prompts=30, claim_seconds=2.0
    )
    return replace(config, **changes)


def shard_node(config: ShardConfig, teacher: Node | None) -> Node:
    inputs = {"environment": environment()} | ({} if teacher is None else {"teacher": teacher})
    return Node(("synthetic", config.name, "rollouts"), shard_partition(config.shard), SYNTHETIC_ROLLOUTS, config, inputs)


def accepted_node(config: ShardConfig, teacher: Node | None, accept: AcceptConfig = ACCEPT) -> Node:
    shards = tuple(shard_node(replace(config, shard=number), teacher) for number in range(config.shards))
    inputs = {"environment": environment(), "rollouts": shards}
    return Node(("synthetic", config.name, "accepted"), None, SYNTHETIC_ACCEPTED, accept, inputs)


def built(store: Store, last: Node) -> Artifact:
    return build_all(store, [last], launcher=here)[0]
