"""Record what TRL's own code makes of given log-probabilities: losses and gradients of DPO and of supervised fine-tuning.

    python benchmarks/post_training/record_trl_preferences.py tests/trainer/golden/trl_preferences.json

It runs in an environment of its own with trl, peft, torch and transformers, which the project does not depend on.
`tests/trainer/test_preferences.py` compares ours with the file. Label smoothing is in TRL's `aot` loss, which sorts the pairs
of a batch: it is fed one pair at a time, which leaves nothing to sort.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import torch
import trl
from transformers.loss.loss_utils import ForCausalLMLoss
from trl.trainer.dpo_trainer import DPOTrainer

PAIRS, LENGTH, VOCABULARY = 5, 7, 11
VARIANTS = {
    "sigmoid": {"loss": "sigmoid", "beta": 0.1},
    "sigmoid_sharp": {"loss": "sigmoid", "beta": 2.0},
    "smoothed": {"loss": "aot", "beta": 0.5, "label_smoothing": 0.2},
    "ipo_by_length": {"loss": "ipo", "beta": 0.3},
    "sigmoid_by_length": {"loss": "sigmoid_norm", "beta": 0.7},
}


class Accelerator:
    """One process: nothing to gather."""

    device = torch.device("cpu")

    def gather(self, value: torch.Tensor) -> torch.Tensor:
        return value

    gather_for_metrics = gather


def trainer_of(variant: dict) -> SimpleNamespace:
    """What `DPOTrainer._compute_loss` reads of a trainer."""
    return SimpleNamespace(
        accelerator=Accelerator(), aux_loss_enabled=False, ld_alpha=None, precompute_ref_logps=True,
        f_divergence_type="reverse_kl", f_alpha_divergence_coef=0.5, loss_types=[variant["loss"]], loss_weights=[1.0],
        model=SimpleNamespace(training=True), beta=variant["beta"],
        label_smoothing=variant.get("label_smoothing", 0.0), use_weighting=False,
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)}, _total_train_tokens=0, _tp_size=1,
    )  # fmt: skip


def loss_of(variant: dict, log_probs: torch.Tensor, mask: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """TRL's loss of pairs: `log_probs` and `mask` [pairs, 2, length], `reference` [pairs, 2]."""
    rows = torch.cat([log_probs[:, 0], log_probs[:, 1]])
    masks = torch.cat([mask[:, 0], mask[:, 1]])

    def model(**_: object) -> SimpleNamespace:
        shifted = (rows * masks)[:, 1:]
        zeros = torch.zeros_like(shifted)
        return SimpleNamespace(log_probs=shifted, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())

    model.training = True
    inputs = {
        "input_ids": torch.zeros_like(masks), "attention_mask": torch.ones_like(masks), "completion_mask": masks,
        "ref_chosen_logps": reference[:, 0], "ref_rejected_logps": reference[:, 1],
    }  # fmt: skip
    return DPOTrainer._compute_loss(trainer_of(variant), model, inputs, False)


def record(variant: dict, log_probs: torch.Tensor, mask: torch.Tensor, reference: torch.Tensor) -> dict:
    """The mean loss and its gradient by log-probability."""
    leaf = log_probs.clone().requires_grad_(True)
    alone = [slice(i, i + 1) for i in range(PAIRS)] if variant["loss"] == "aot" else [slice(0, PAIRS)]
    loss = torch.stack([loss_of(variant, leaf[rows], mask[rows], reference[rows]) for rows in alone]).mean()
    loss.backward()
    return {**variant, "value": loss.item(), "gradient": leaf.grad.tolist()}


def record_sft(random: torch.Generator) -> dict:
    """The loss of supervised fine-tuning on given logits, which TRL takes from transformers, and its gradient."""
    logits = torch.randn(3, LENGTH, VOCABULARY, generator=random, dtype=torch.float64).float().requires_grad_(True)
    tokens = torch.randint(0, VOCABULARY, (3, LENGTH), generator=random)
    mask = torch.rand(3, LENGTH, generator=random) < 0.6
    loss = ForCausalLMLoss(logits, tokens.masked_fill(~mask, -100), VOCABULARY)
    loss.backward()
    return {
        "logits": logits.tolist(), "tokens": tokens.tolist(), "mask": mask.int().tolist(),
        "value": loss.item(), "gradient": logits.grad.tolist(),
    }  # fmt: skip


def main(path: str) -> None:
    random = torch.Generator().manual_seed(0)
    log_probs = -3 * torch.rand(PAIRS, 2, LENGTH, generator=random)
    mask = torch.zeros(PAIRS, 2, LENGTH, dtype=torch.long)
    for row in mask.view(-1, LENGTH):
        begin = int(torch.randint(1, LENGTH - 2, (1,), generator=random))
        row[begin : int(torch.randint(begin + 1, LENGTH + 1, (1,), generator=random))] = 1
    reference = (log_probs * mask).sum(dim=2) + torch.randn(PAIRS, 2, generator=random)
    recorded = {
        "trl": trl.__version__, "torch": torch.__version__,
        "log_probs": log_probs.tolist(), "mask": mask.tolist(), "reference": reference.tolist(),
        "dpo": {name: record(variant, log_probs, mask, reference) for name, variant in VARIANTS.items()},
        "sft": record_sft(random),
    }  # fmt: skip
    Path(path).write_text(json.dumps(recorded) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
