"""The sides of `transformers` in `moe_speed.py`: Qwen3-MoE with one of its implementations of experts, and torch's AdamW."""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from step_times import report_steps
from transformers import Qwen3MoeForCausalLM

LEARNING_RATE = 1e-3
"""That of `training_speed.py`, which this environment cannot import."""


def main(folder: Path, experts: str) -> None:
    model = Qwen3MoeForCausalLM.from_pretrained(
        folder / "qwen", dtype=torch.float32, attn_implementation="sdpa", experts_implementation=experts
    )
    chosen = model.config._experts_implementation
    if chosen != experts:
        raise SystemExit(f"transformers {transformers.__version__} chose experts_implementation {chosen!r}, not {experts!r}")
    model.train()
    decayed = [weight for name, weight in model.named_parameters() if _decays(name)]
    others = [weight for name, weight in model.named_parameters() if not _decays(name)]
    rule = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=LEARNING_RATE, betas=(0.9, 0.95), eps=1e-8, fused=True,
    )  # fmt: skip

    def step(batch: np.ndarray) -> float:
        rule.zero_grad(set_to_none=True)
        ids = torch.from_numpy(batch).long()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rule.step()
        return loss.item()

    square, versions = torch.ones(2048, 2048), f"transformers {transformers.__version__}, torch {torch.__version__}"
    tokens = np.load(folder / "tokens.npy")
    report_steps(step, tokens, lambda: torch.mm(square, square), f"{versions}, {torch.get_num_threads()} threads")


def _decays(name: str) -> bool:
    """Matrices decay; embedding, norms and the router do not, as on our side."""
    return "norm" not in name and "embed_tokens" not in name and not name.endswith("mlp.gate.weight")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
