"""Record what TRL's own code makes of given log-probabilities: losses and gradients of GRPO and RLOO, and RLOO's advantages.

    python benchmarks/post_training/record_trl_rewards.py tests/post_training/trl_rewards.json

It runs in an environment of its own with trl, torch and transformers, which the project does not depend on.
`tests/post_training/test_trl_rewards.py` compares ours with the file. The advantages of TRL are computed inside of the method
that generates; that part of its source is run here on given rewards.
"""

import inspect
import json
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import torch
import trl
from trl.trainer import grpo_trainer, rloo_trainer

GROUPS, MEMBERS, LENGTH, MOST_NEW = 3, 4, 6, 8
ROWS = GROUPS * MEMBERS
GRPO = {
    "grpo": {"loss_type": "grpo"},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "clip_higher": {"loss_type": "bnpo", "epsilon_high": 0.28, "scale_rewards": "batch"},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "k3": {"loss_type": "grpo", "beta": 0.1},
    "k3_corrected": {"loss_type": "grpo", "beta": 0.1, "use_bias_correction_kl": True},
}
RLOO = {"rloo": {"beta": 0.0}, "rloo_kl": {"beta": 0.05}}


class Accelerator:
    """One process: nothing to gather."""

    device, num_processes, process_index = torch.device("cpu"), 1, 0

    def gather(self, value: torch.Tensor) -> torch.Tensor:
        return value

    gather_for_metrics = gather

    def reduce(self, value: torch.Tensor, reduction: str) -> torch.Tensor:
        return value


def trainer_of(variant: dict, log_probs: torch.Tensor) -> SimpleNamespace:
    """What `_compute_loss` of both trainers reads of a trainer."""
    return SimpleNamespace(
        accelerator=Accelerator(), aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        importance_sampling_level=variant.get("importance_sampling_level", "token"), beta=variant.get("beta", 0.0),
        args=SimpleNamespace(
            use_bias_correction_kl=variant.get("use_bias_correction_kl", False), delta=None, steps_per_generation=1
        ),
        loss_type=variant.get("loss_type"), epsilon_low=0.2, epsilon_high=variant.get("epsilon_high", 0.2), use_vllm=False,
        model=SimpleNamespace(training=True), current_gradient_accumulation_steps=1, max_completion_length=MOST_NEW,
        _entropy_bonus_enabled=False, _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (log_probs, torch.zeros_like(log_probs), None),
    )  # fmt: skip


def inputs_of(given: dict[str, torch.Tensor], advantages: torch.Tensor) -> dict[str, torch.Tensor]:
    """A batch; prompts are empty, because only their length counts."""
    nothing = torch.zeros(ROWS, 0, dtype=torch.long)
    return {
        "prompt_ids": nothing, "prompt_mask": nothing,
        "completion_ids": torch.zeros(ROWS, LENGTH, dtype=torch.long), "completion_mask": given["mask"],
        "advantages": advantages, "old_per_token_logps": given["before"], "ref_per_token_logps": given["reference"],
        "old_logps": (given["before"] * given["mask"]).sum(dim=1), "num_items_in_batch": given["mask"].sum(),
    }  # fmt: skip


def advantages_of(module, trainer_class: type, names: dict) -> torch.Tensor:
    """Run the lines of the generating method from the first sum of rewards to the advantages."""
    lines = inspect.getsource(trainer_class._generate_and_score_completions).split("\n")
    start = next(i for i, line in enumerate(lines) if "unscorable_mask = torch.isnan" in line)
    end = next(i for i, line in enumerate(lines) if "advantages = torch.nan_to_num" in line)
    source = textwrap.dedent("\n".join(lines[start : end + 1]))
    scope = {**vars(module), **names, "gather": lambda value: value}
    exec(compile(source, trainer_class.__name__, "exec"), scope)
    return scope["advantages"]


def record(module, trainer_class: type, variant: dict, given: dict[str, torch.Tensor]) -> dict:
    """Advantages, the loss, and its gradient by log-probability."""
    leaf = given["current"].clone().requires_grad_(True)
    owner = SimpleNamespace(
        reward_weights=torch.ones(1), multi_objective_aggregation="sum_then_normalize", normalize_advantages=False,
        scale_rewards=variant.get("scale_rewards", "group"), reward_clip_range=None, beta=variant.get("beta", 0.0),
    )  # fmt: skip
    advantages = advantages_of(module, trainer_class, {
        "self": owner, "rewards_per_func": given["rewards"].reshape(-1, 1), "num_generations": MEMBERS, "device": "cpu",
        "old_per_token_logps": given["before"], "ref_per_token_logps": given["reference"],
        "completion_mask": given["mask"],
    })  # fmt: skip
    loss = trainer_class._compute_loss(trainer_of(variant, leaf), None, inputs_of(given, advantages))
    loss.backward()
    return {**variant, "advantages": advantages.tolist(), "value": loss.item(), "gradient": leaf.grad.tolist()}


def main(path: str) -> None:
    random = torch.Generator().manual_seed(0)
    before = -3 * torch.rand(ROWS, LENGTH, generator=random)
    lengths = torch.randint(1, LENGTH + 1, (ROWS, 1), generator=random)
    given = {
        "before": before,
        "current": before + 0.25 * torch.randn(ROWS, LENGTH, generator=random),
        "reference": before + 0.5 * torch.randn(ROWS, LENGTH, generator=random),
        "mask": (torch.arange(LENGTH)[None] < lengths).long(),
        "rewards": torch.rand(ROWS, generator=random).round(decimals=1),
    }
    recorded = {
        "trl": trl.__version__, "torch": torch.__version__, "members": MEMBERS, "most_new": MOST_NEW,
        **{name: value.tolist() for name, value in given.items()},
        "variants": {
            **{name: record(grpo_trainer, grpo_trainer.GRPOTrainer, variant, given) for name, variant in GRPO.items()},
            **{name: record(rloo_trainer, rloo_trainer.RLOOTrainer, variant, given) for name, variant in RLOO.items()},
        },
    }  # fmt: skip
    Path(path).write_text(json.dumps(recorded) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:][0])
