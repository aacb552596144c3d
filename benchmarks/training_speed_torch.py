"""Plain PyTorch's side of `training_speed.py`: `scaled_dot_product_attention`, `cross_entropy`, fused AdamW, eager mode."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional
from step_times import report_steps


class PlainLlama(torch.nn.Module):
    """The model as one writes it in PyTorch; weights in the layout of `torch.nn.Linear`."""

    def __init__(self, weights: dict[str, np.ndarray], shape: dict, residual: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.residual = residual
        self.eps, d = shape["norm_eps"], shape["hidden_dim"]
        self.kv_heads, self.size = weights["k"].shape[2:]
        self.layers = shape["num_layers"]

        def parameters(name: str, inputs: int) -> torch.nn.ParameterList:
            """[output, input] of each layer, from arrays that have their inputs first."""
            per_layer = torch.from_numpy(weights[name]).reshape(self.layers, inputs, -1).transpose(1, 2)
            return torch.nn.ParameterList(layer.contiguous() for layer in per_layer)

        self.embedding = torch.nn.Parameter(torch.from_numpy(weights["embedding"]))
        self.q, self.k, self.v = (parameters(name, d) for name in ("q", "k", "v"))
        self.o = parameters("o", d)
        self.gate, self.up = (parameters(name, d) for name in ("gate", "up"))
        self.down = parameters("down", shape["intermediate_dim"])
        self.norms = torch.nn.ParameterList(torch.ones(d) for _ in range(2 * self.layers + 1))
        half = self.size // 2
        angles = torch.arange(shape["max_seq_len"])[:, None] * shape["rope_theta"] ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * self.cos - second * self.sin, second * self.cos + first * self.sin], dim=-1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean nats of the tokens after each row's first."""
        logits = functional.linear(self.hidden(tokens)[:, :-1].flatten(0, 1), self.embedding)
        return functional.cross_entropy(logits, tokens[:, 1:].reshape(-1))

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """What the vocabulary's product reads, [batch, length, d]."""
        batch, length = tokens.shape
        d = self.embedding.shape[1]
        x = functional.embedding(tokens, self.embedding).to(self.residual)
        for layer in range(self.layers):
            h = functional.rms_norm(x, (d,), self.norms[2 * layer], self.eps)
            heads = [
                functional.linear(h, each[layer]).view(batch, length, -1, self.size).transpose(1, 2)
                for each in (self.q, self.k, self.v)
            ]
            q, k, v = self.rotate(heads[0]), self.rotate(heads[1]), heads[2]
            read = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + functional.linear(read.transpose(1, 2).reshape(batch, length, d), self.o[layer])
            h = functional.rms_norm(x, (d,), self.norms[2 * layer + 1], self.eps)
            wide = functional.silu(functional.linear(h, self.gate[layer])) * functional.linear(h, self.up[layer])
            x = x + functional.linear(wide, self.down[layer])
        return functional.rms_norm(x, (d,), self.norms[-1], self.eps)


def main(folder: Path) -> None:
    shape, tokens = json.loads((folder / "shape.json").read_text()), np.load(folder / "tokens.npy")
    model = PlainLlama(dict(np.load(folder / "weights.npz")), shape)
    matrices = [weight for name, weight in model.named_parameters() if name.split(".")[0] not in ("embedding", "norms")]
    others = [weight for name, weight in model.named_parameters() if name.split(".")[0] in ("embedding", "norms")]
    rule = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": shape["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
        lr=shape["learning_rate"], betas=(shape["beta1"], shape["beta2"]), eps=shape["eps"], fused=True,
    )  # fmt: skip

    def step(batch: np.ndarray) -> float:
        rule.zero_grad(set_to_none=True)
        loss = model(torch.from_numpy(batch).long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), shape["max_grad_norm"])
        rule.step()
        return loss.item()

    square = torch.ones(2048, 2048)
    report_steps(
        step, tokens, lambda: torch.mm(square, square), f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
