"""How a run learns from rewards: sampling, advantage, loss, KL term. Frozen records that check themselves; no JAX."""

from dataclasses import dataclass, field
from typing import Literal

from trainer.spec.checks import require
from trainer.spec.config import RunSpec
from trainer.spec.moe import MoeConfig


@dataclass(frozen=True)
class SamplingConfig:
    """How the completions of an iteration are sampled."""

    prompts: int
    """Prompts in an iteration, drawn without replacement within a pass over the train prompts."""
    completions: int
    """Completions of each prompt: the group."""
    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    """Mass of the kept set (nucleus sampling, Holtzman et al. 2019, arXiv 1904.09751). Below 1 the kept set of every token is
    stored, and the trainer computes its log-probabilities over that set."""

    def __post_init__(self) -> None:
        for name in ("prompts", "completions", "max_new_tokens"):
            require(getattr(self, name) > 0, f"sampling.{name}", getattr(self, name), "positive")
        require(self.temperature > 0, "sampling.temperature", self.temperature, "positive; greedy completions have no gradient")
        require(0 < self.top_p <= 1, "sampling.top_p", self.top_p, "in (0, 1]")

    @property
    def rows(self) -> int:
        """Completions of an iteration."""
        return self.prompts * self.completions


@dataclass(frozen=True)
class Rloo:
    """Reward minus the mean of the other completions of the group (Ahmadian et al. 2024, arXiv 2402.14740)."""

    kind: Literal["rloo"] = "rloo"


@dataclass(frozen=True)
class Grpo:
    """Reward minus the group's mean, divided by a standard deviation (Shao et al. 2024, arXiv 2402.03300)."""

    scale: Literal["group", "batch", "none"] = "group"
    """`none` is Dr. GRPO (Liu et al. 2025, arXiv 2503.20783): division by the group's deviation gives easy and hard prompts
    more weight."""
    kind: Literal["grpo"] = "grpo"

    def __post_init__(self) -> None:
        require(self.scale in ("group", "batch", "none"), "advantage.scale", self.scale, "group, batch or none")


@dataclass(frozen=True)
class Reinforce:
    """Reward minus a baseline over the whole batch without the completion itself (Williams 1992)."""

    baseline: Literal["batch", "none"] = "batch"
    kind: Literal["reinforce"] = "reinforce"

    def __post_init__(self) -> None:
        require(self.baseline in ("batch", "none"), "advantage.baseline", self.baseline, "batch or none")


@dataclass(frozen=True)
class Distill:
    """No reward: the run learns only from the KL term, whose reference is a teacher (on-policy distillation, Agarwal et al.
    2023, arXiv 2306.13649)."""

    kind: Literal["distill"] = "distill"


@dataclass(frozen=True)
class Imitate:
    """No sampling: the completions are the environment's own answers, and the loss is their log-probability (supervised
    fine-tuning). A policy needs some right completions before rewards can teach it."""

    kind: Literal["imitate"] = "imitate"


type Advantage = Rloo | Grpo | Reinforce | Distill | Imitate


@dataclass(frozen=True)
class KLConfig:
    """A penalty on the distance to a reference policy. Estimators: http://joschu.net/blog/kl-approx.html."""

    coefficient: float
    estimator: Literal["k1", "k2", "k3", "k3_corrected", "full"] = "k2"
    where: Literal["loss", "reward"] = "loss"
    reference: Literal["start", "teacher"] = "start"
    """The checkpoint that the run starts from, or the job's input `teacher`."""

    def __post_init__(self) -> None:
        require(self.coefficient > 0, "kl.coefficient", self.coefficient, "positive; None instead of a KLConfig is no penalty")
        require(self.reference in ("start", "teacher"), "kl.reference", self.reference, "start or teacher")
        known = ("k1", "k2", "k3", "k3_corrected", "full")
        require(self.estimator in known, "kl.estimator", self.estimator, ", ".join(known))
        if self.where == "loss" and self.estimator == "k1":
            raise ValueError(
                "kl.estimator is k1 in the loss; the expectation of its gradient is 0, so it penalizes nothing. Give k2, "
                "k3_corrected or full in the loss, or k1 in the reward"
            )
        if self.where == "reward" and self.estimator != "k1":
            raise ValueError(
                f"kl.estimator is {self.estimator} in the reward; the gradient of the expected reward is then not that of a KL "
                "divergence to the reference. Give k1 in the reward, or put this estimator in the loss"
            )
        require(self.where in ("loss", "reward"), "kl.where", self.where, "loss or reward")

    @property
    def direction(self) -> str:
        """The divergence whose gradient equals that of the estimator, on policy."""
        return "reference_to_policy" if self.where == "loss" and self.estimator == "k3" else "policy_to_reference"


@dataclass(frozen=True)
class CorrectionConfig:
    """Importance weight exp(trainer - sampler) against a sampler that differs from the trainer (Yao et al. 2025,
    fengyao.notion.site/off-policy-rl)."""

    level: Literal["token", "sequence"] = "token"
    """`sequence`: one weight for each completion, from the sum of its differences."""
    bound: Literal["truncate", "mask"] = "truncate"
    """What happens to weights above `limit`: they are cut to it, or set to 0."""
    limit: float = 2.0

    def __post_init__(self) -> None:
        require(self.level in ("token", "sequence"), "correction.level", self.level, "token or sequence")
        require(self.bound in ("truncate", "mask"), "correction.bound", self.bound, "truncate or mask")
        require(self.limit >= 1, "correction.limit", self.limit, "at least 1")


@dataclass(frozen=True)
class LossConfig:
    """The clipped policy gradient (Schulman et al. 2017, arXiv 1707.06347) and how tokens are averaged."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    """Above `clip_low` in DAPO (Yu et al. 2025, arXiv 2503.14476)."""
    ratio: Literal["token", "sequence", "product"] = "token"
    """`sequence`: the geometric mean over a completion (GSPO, Zheng et al. 2025, arXiv 2507.18071). `product`: the ratio of the
    whole completion; with `aggregate="sequence_mean"` this is the loss of RLOO in TRL."""
    aggregate: Literal["sequence_mean", "token_mean", "fixed_length"] = "token_mean"
    """Mean over completions of their mean over tokens (GRPO); mean over all tokens (DAPO); sum over tokens divided by
    completions times `max_new_tokens` (Dr. GRPO). This choice is the length bias."""
    correction: CorrectionConfig | None = CorrectionConfig()
    truncated: Literal["train", "mask"] = "mask"
    """Whether completions without an end of text count in the loss."""

    def __post_init__(self) -> None:
        require(0 < self.clip_low < 1, "loss.clip_low", self.clip_low, "in (0, 1)")
        require(self.clip_high > 0, "loss.clip_high", self.clip_high, "positive")
        require(self.ratio in ("token", "sequence", "product"), "loss.ratio", self.ratio, "token, sequence or product")
        kinds = ("sequence_mean", "token_mean", "fixed_length")
        require(self.aggregate in kinds, "loss.aggregate", self.aggregate, ", ".join(kinds))
        require(self.truncated in ("train", "mask"), "loss.truncated", self.truncated, "train or mask")


@dataclass(frozen=True)
class RewardRunSpec:
    """One run of reinforcement learning, format `reward_run/1`. `run` gives model, optimizer, schedule, seed and saves; its
    batch size is the number of completions in one update, and a step is one update."""

    run: RunSpec
    sampling: SamplingConfig
    advantage: Advantage
    loss: LossConfig = LossConfig()
    kl: KLConfig | None = None
    inner_epochs: int = 1
    """Passes over the completions of an iteration."""
    max_staleness: int = 0
    """How many updates of the policy, in iterations, a rollout may be older than the policy it trains. 0 is the synchronous
    path. Above 0 workers behind a broker sample the next iterations while this one is trained (`remote_sampling`)."""
    control: Literal["none", "permuted_rewards"] = field(default="none")
    """`permuted_rewards`: every reward goes to a random completion of the whole batch, so nothing can be learned."""
    unnamed_weights: Literal["refuse", "train"] = field(default="refuse", metadata={"added_later": True})
    """What happens to answers of workers that do not name their weights, such as vLLM's. Their age is unknown, so
    `max_staleness` cannot be kept: the run stops, or trains on them and records their policy as unknown."""

    def __post_init__(self) -> None:
        run, sampling = self.run, self.sampling
        imitates = isinstance(self.advantage, Imitate)
        require(run.start is not None or imitates, "run.start", run.start, "a WarmStart; the policy begins as a checkpoint")
        alone = not imitates or (sampling.completions == 1 and self.kl is None)
        require(alone, "sampling.completions and kl", (sampling.completions, self.kl), "1 and None for imitate")
        dense = not isinstance(run.model, MoeConfig)
        require(dense, "run.model", "a mixture of experts", "a dense model; the router's balance is not part of this loss")
        full = self.kl is not None and self.kl.estimator == "full"
        require(not full or sampling.top_p == 1, "sampling.top_p", sampling.top_p, "1 for kl.estimator full")
        require(self.inner_epochs > 0, "inner_epochs", self.inner_epochs, "positive")
        self._check_staleness()
        drops = 0.0 if run.adapter is None else run.adapter.dropout
        whole = drops == 0 or imitates
        require(whole, "run.adapter.dropout", drops, "0 with rewards: ratios compare with log-probabilities without dropout")
        require(self.control in ("none", "permuted_rewards"), "control", self.control, "none or permuted_rewards")
        grouped = isinstance(self.advantage, Rloo | Grpo)
        fits = sampling.completions > 1 or not grouped
        allowed = f"at least 2 for {self.advantage.kind}: a group of one has no other completion to compare with"
        require(fits, "sampling.completions", sampling.completions, allowed)
        for phase in run.batches.phases:
            divides = sampling.rows % phase.batch_size == 0
            require(
                divides, "run.batch_size", phase.batch_size, f"a divisor of the {sampling.rows} completions of an iteration"
            )
        require(len(run.batches.phases) == 1, "run.batch_size", run.batch_size, "one number")
        whole = run.num_steps % self.updates == 0
        require(whole, "run.num_steps", run.num_steps, f"a multiple of {self.updates}, the updates of an iteration")
        between = [step for step in run.saved_steps() if step % self.updates]
        require(not between, "run.saved_steps", between, f"multiples of {self.updates}, the updates of an iteration")
        room = sampling.max_new_tokens < run.seq_len
        require(room, "sampling.max_new_tokens", sampling.max_new_tokens, f"below run.seq_len {run.seq_len}")
        teaches = not isinstance(self.advantage, Distill) or (self.kl is not None and self.kl.where == "loss")
        require(teaches, "kl", self.kl, "a KLConfig in the loss for distill, which has no reward")
        plain = run.z_loss_weight == 0 and run.ema is None
        require(plain, "run.z_loss_weight and run.ema", (run.z_loss_weight, run.ema), "0 and None")
        require(not run.gradient_noise, "run.gradient_noise", True, "False: a run on rewards has no such columns")

    def _check_staleness(self) -> None:
        bound, kl = self.max_staleness, self.kl
        require(bound >= 0, "max_staleness", bound, "at least 0")
        sampled = not isinstance(self.advantage, Imitate)
        require(sampled or bound == 0, "max_staleness", bound, "0 for imitate, which samples nothing")
        weighed = bound == 0 or self.loss.correction is not None
        require(weighed, "loss.correction", None, "a CorrectionConfig with max_staleness above 0: older policies sample")
        plain = bound > 0 and kl is not None and (kl.where, kl.estimator) == ("loss", "k3")
        require(not plain, "kl.estimator", "k3", "k2, k3_corrected or full with max_staleness above 0: k3 carries no ratio")
        unnamed = self.unnamed_weights
        require(unnamed in ("refuse", "train"), "unnamed_weights", unnamed, "refuse or train")
        require(unnamed == "refuse" or bound > 0, "unnamed_weights", unnamed, "refuse with max_staleness 0: the run samples")

    @property
    def updates(self) -> int:
        """Updates of an iteration."""
        return self.inner_epochs * self.sampling.rows // self.run.batches.size(0)

    @property
    def iterations(self) -> int:
        return self.run.num_steps // self.updates

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt that leaves room for a completion."""
        return self.run.seq_len - self.sampling.max_new_tokens
