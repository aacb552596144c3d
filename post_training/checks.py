"""Checks of a run on rewards, over the rollouts that its last checkpoint learned from.

Each returns (outcome, why). `error` means that rewards or log-probabilities are wrong, `warn` that training goes wrong.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from post_training.environments.prompt import Prompt
from post_training.environments.table import read_prompts
from post_training.spec import RewardRunSpec
from post_training.stage import ROLLOUTS_FILE, RewardCheckpointConfig
from post_training.texts import shards_of

type Facts = Sequence[Mapping[str, Any]]
type Outcome = tuple[Literal["passed", "warn", "error"], str]

MOST_MISMATCH = {"float32": 1e-3, "bfloat16": 5e-2}
"""Nats a token, mean of an iteration. Float32 programs of one machine differ by 1e-5 (docs/log.md, 2026-11-25); bfloat16 rounds
logits by 2^-8 of their size."""
WINDOW = 10
"""Iterations in a mean that is compared, so that eight prompts that are easy or hard by chance cause no alarm."""
MOST_DEAD = 0.9
"""Share of groups without a difference in reward. A run that began with 88 % collapsed."""
MOST_KL = 10.0
"""Nats a completion. A run that collapsed was at 14.5 after 100 steps; runs that learned stay below 3 (docs/log.md)."""
MOST_DRIFT = 2.0
"""Factor between mean lengths of the first and the last iterations."""
LEAST_ENTROPY = 0.005
"""Nats a token. Below it the samples of a group are equal, and the run cannot learn more."""
JUDGED_AGAIN = 256
LEAST_AGREEMENT = 0.99
MOST_GAP = 0.1
"""Accuracy on train prompts minus accuracy on held-out prompts, both sampled."""


def facts_of(checkpoint: Artifact) -> Facts:
    """What the manifests of a checkpoint's rollouts say, in the order of the iterations."""
    return [shard.manifest.extra["iteration"] for shard in shards_of(checkpoint)]


def sampler_is_trainer(checkpoint: Artifact) -> list[str]:
    """Find iterations in which sampler and trainer gave different log-probabilities. The ratios of the loss are wrong there.

    Only completions of the policy that was trained are compared; an iteration of older policies alone has none.
    """
    run = _run(checkpoint)
    dtype = checkpoint.manifest.extra["checkpoint"]["compute"]["dtype"]
    limit = MOST_MISMATCH[dtype]
    return [
        f"{run.run.name} iteration {number}: sampler and trainer differ by {facts['mismatch']:.2g} nats a token; {limit:g} is "
        "allowed"
        for number, facts in enumerate(facts_of(checkpoint))
        if facts["mismatch"] is not None and not facts["mismatch"] <= limit
    ]


def loss_is_finite(checkpoint: Artifact) -> list[str]:
    """Find updates whose loss is not finite."""
    losses = pl.read_parquet(checkpoint.file("metrics.parquet"))["loss_nats"]
    broken = losses.len() - int(losses.is_finite().sum())
    return [f"{broken} of {losses.len()} losses are not finite"] if broken else []


def groups_are_alive(checkpoint: Artifact) -> Outcome:
    """`judge_groups`, for a run with groups."""
    if _run(checkpoint).sampling.completions == 1:
        return "passed", "a group is one completion"
    return judge_groups(facts_of(checkpoint))


def judge_groups(facts: Facts) -> Outcome:
    """Judge the share of dead groups in windows of iterations. Equal high rewards are dead too, so `why` has the reward."""
    dead, reward = windows(facts, "dead_groups"), windows(facts, "reward")
    harm = np.where(reward < MOST_DEAD, dead, 0.0)
    worst = int(harm.argmax())
    why = f"at most {dead[worst]:.0%} of the groups of {WINDOW} iterations are dead, where the reward is {reward[worst]:.2f}"
    return ("warn" if harm[worst] > MOST_DEAD else "passed"), why


def kl_in_band(checkpoint: Artifact) -> Outcome:
    """`judge_kl` of the iterations."""
    return judge_kl(facts_of(checkpoint))


def judge_kl(facts: Facts) -> Outcome:
    """Judge the distance to the reference."""
    if "kl" not in facts[0]:
        return "passed", "the run has no reference"
    kl = windows(facts, "kl")
    why = f"KL to the reference: {kl.max():.2f} nats a completion at most, {kl[-1]:.2f} at the end; {MOST_KL:g} allowed"
    return ("passed" if kl.max() <= MOST_KL else "warn"), why


def length_is_steady(checkpoint: Artifact) -> Outcome:
    """`judge_length` of the iterations."""
    return judge_length(facts_of(checkpoint))


def judge_length(facts: Facts) -> Outcome:
    """Compare mean lengths of the first and last iterations: rewards may grow with length, or answers may be cut short."""
    lengths = windows(facts, "length")
    factor = lengths[-1] / lengths[0]
    why = f"completions have {lengths[0]:.1f} tokens at first and {lengths[-1]:.1f} at the end"
    return ("passed" if 1 / MOST_DRIFT <= factor <= MOST_DRIFT else "warn"), why


def entropy_above_floor(checkpoint: Artifact) -> Outcome:
    """`judge_entropy` of the iterations."""
    return judge_entropy(facts_of(checkpoint))


def judge_entropy(facts: Facts) -> Outcome:
    """Judge the entropy of the sampling distribution in the last iterations."""
    entropy = windows(facts, "entropy")
    why = f"entropy is {entropy[0]:.3f} nats a token at first and {entropy[-1]:.3f} at the end; {LEAST_ENTROPY} is the floor"
    return ("passed" if entropy[-1] >= LEAST_ENTROPY else "warn"), why


def policies_are_known(checkpoint: Artifact) -> Outcome:
    """`judge_policies` of the iterations."""
    return judge_policies(facts_of(checkpoint))


def judge_policies(facts: Facts) -> Outcome:
    """Count completions whose server did not name its weights. Nothing bounds how old their policies were."""
    unknown = [each.get("unknown_policies", 0) for each in facts]
    if not any(unknown):
        return "passed", "every completion names the policy that sampled it"
    within = f"{sum(count > 0 for count in unknown)} of {len(facts)} iterations"
    return "warn", f"{sum(unknown)} completions in {within} are of unknown policies, so their age has no bound"


def second_verifier_agrees(checkpoint: Artifact) -> Outcome:
    """Judge a sample of the last rewarded completions by a second verifier. A reward that it denies was hacked."""
    from post_training.environments.verify import SECOND_VERIFIERS, verify  # loads JAX, which the asset graph does not need

    environment = checkpoint.input("environment")
    second = SECOND_VERIFIERS.get(environment.spec.stage)
    if second is None:
        return "warn", f"not checked: environments of {environment.spec.stage} have no second verifier"
    prompts = {each.prompt_id: each for each in read_prompts(environment, "train")}
    last = list(shards_of(checkpoint))[-WINDOW:]
    table = pl.concat([pl.read_parquet(each.file(ROLLOUTS_FILE), columns=["prompt_id", "text", "verdict"]) for each in last])
    right = table.filter(pl.col("verdict") == "right")
    sample = right.gather_every(max(1, len(right) // JUDGED_AGAIN)).head(JUDGED_AGAIN)
    if not len(sample):
        return "warn", "nothing was rewarded in the last iterations"
    of_sample: Sequence[Prompt] = [prompts[name] for name in sample["prompt_id"]]
    agreed = [verdict.outcome == "right" for verdict in verify(second, of_sample, sample["text"].to_list())]
    why = f"the second verifier accepts {sum(agreed)} of {len(agreed)} rewarded completions"
    return ("passed" if sum(agreed) >= LEAST_AGREEMENT * len(agreed) else "error"), why


def held_out_gap(scores: Artifact) -> Outcome:
    """Compare sampled accuracy on held-out prompts and on the train prompts of the last iterations before the checkpoint."""
    held = scores.manifest.extra["held_out"]
    facts = facts_of(scores.input("checkpoint"))
    train = float(windows(facts, "right")[-1])
    why = f"{train:.1%} of the last train samples are right, {held['accuracy']:.1%} of {held['prompts']} held-out prompts"
    return ("warn" if train - held["accuracy"] > MOST_GAP else "passed"), why


def windows(facts: Facts, name: str) -> np.ndarray:
    """Return means over consecutive windows of iterations. The last window ends at the last iteration. NaN: unknown."""
    values = np.array([np.nan if each[name] is None else each[name] for each in facts], np.float64)
    size = min(WINDOW, len(values))
    return np.convolve(values, np.ones(size) / size, mode="valid")


def _run(checkpoint: Artifact) -> RewardRunSpec:
    return from_jsonable(RewardCheckpointConfig, checkpoint.spec.config)
