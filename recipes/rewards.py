"""Two-digit addition learned from rewards: the nodes of `make post-train` and `make post-train-study`.

The recipe was found by hand (docs/log.md, 2026-11-25): after 430 steps of imitation a model of .1 M parameters has about 37 %
of its samples right, so most groups hold right and wrong answers; the rate 2e-3 needs a long linear decay.
"""

from dataclasses import replace
from functools import cache

from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from lineage.build.plan import Node
from post_training.environments.arithmetic import ADDITION, Addition
from post_training.spec import Advantage, Grpo, Imitate, KLConfig, LossConfig, Reinforce, RewardRunSpec, Rloo, SamplingConfig
from post_training.stage import HELD_OUT, REWARD_CHECKPOINT, HeldOutConfig, RewardCheckpointConfig
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.stage import step_partition

BYTES = 257
"""Every byte and the end of text: no merge joins two digits."""
ANSWER = 5
"""Most tokens of a completion: three digits, the end of text, and one too many."""
ITERATIONS, PROMPTS, GROUP, UPDATE = 160, 64, 16, 256
ARMS: dict[str, Advantage] = {"rloo": Rloo(), "grpo": Grpo(), "permuted": Rloo(), "own-right": Reinforce("none")}
"""`permuted` is the control whose rewards go to random completions. `own-right` imitates its own right samples: an advantage of
1 or 0 without a baseline."""


@cache
def addition() -> Node:
    return Node(("environments", "addition"), None, ADDITION, Addition(2, 0.1))


@cache
def byte_tokenizer() -> Node:
    return Node(("tokenizer", "bytes"), None, TOKENIZER, TokenizerConfig(BYTES), {"corpora": ()})


def imitation(seed: int) -> RewardRunSpec:
    """The base: 430 steps of 64 answers, ended early so that it is often wrong."""
    model = LlamaConfig(
        vocab_size=BYTES, hidden_dim=64, intermediate_dim=176, num_layers=2, num_heads=4, num_kv_heads=2, max_seq_len=16
    )
    schedule = WarmupStableDecay(peak_learning_rate=3e-3, warmup_steps=20, decay_frac=0.2)
    run = RunSpec(f"addition-base-{seed}", model, AdamWConfig(), schedule, 64, 16, 430, seed)
    return RewardRunSpec(run, SamplingConfig(2752, 1, ANSWER), Imitate())


def learner(arm: str, seed: int) -> RewardRunSpec:
    """RLOO, GRPO or a control from that base: 160 iterations of 64 prompts x 16 completions, four updates each."""
    base = imitation(seed).run
    updates = ITERATIONS * PROMPTS * GROUP // UPDATE
    schedule = WarmupStableDecay(peak_learning_rate=2e-3, warmup_steps=10, decay_frac=0.8)
    run = replace(
        base, name=f"addition-{arm}-{seed}", schedule=schedule, optimizer=AdamWConfig(weight_decay=0.0), batch_size=UPDATE,
        num_steps=updates, save_every_steps=updates // 4, start=WarmStart(),
    )  # fmt: skip
    control = "permuted_rewards" if arm == "permuted" else "none"
    sampling = SamplingConfig(PROMPTS, GROUP, ANSWER)
    return RewardRunSpec(run, sampling, ARMS[arm], LossConfig(truncated="train"), KLConfig(0.02, "k2"), control=control)


def checkpoint(spec: RewardRunSpec, step: int | None = None) -> Node:
    """The checkpoint of a run; the last one by default."""
    at = step or spec.run.num_steps
    fields = {name: getattr(spec, name) for name in RewardRunSpec.__dataclass_fields__}
    inputs = {"environment": addition(), "tokenizer": byte_tokenizer()}
    if spec.run.start is not None:
        inputs["start"] = checkpoint(imitation(spec.run.seed))
    key = ("runs", spec.run.name, "checkpoint")
    return Node(key, step_partition(at), REWARD_CHECKPOINT, RewardCheckpointConfig(**fields, step=at), inputs)


def held_out(spec: RewardRunSpec, completions: int) -> Node:
    """Samples of the last checkpoint on up to 1,000 held-out prompts."""
    made = checkpoint(spec)
    config = HeldOutConfig(SamplingConfig(max(1, 2048 // completions), completions, ANSWER))
    inputs = {"checkpoint": made, "environment": addition(), "tokenizer": byte_tokenizer()}
    return Node(("runs", spec.run.name, "held_out"), made.partition, HELD_OUT, config, inputs)
