"""Hugging Face's format of mixtures of experts: OLMoE, Qwen3-MoE and GLM-4-MoE. What their classes do not compute is refused.

Softmax routers go to OLMoE (norms of all heads together) or Qwen3-MoE (norms of each head); sigmoid routers with a bias on
scores to GLM-4-MoE, whose `e_score_correction_bias` is that bias. Sources: `modeling_olmoe.py`, `modeling_qwen3_moe.py` and
`modeling_glm4_moe.py` of transformers 5.23.
"""

from collections.abc import Mapping
from typing import Any

from trainer.hf.format import (
    MATRICES,
    QK_NORMS,
    HfNames,
    HfStack,
    attention_shapes,
    check_plain,
    decoder_config,
    outer_names,
    read_rope,
    rope_share,
    shared_fields,
    weights,
)
from trainer.spec.moe import ExpertsConfig, ExtrasConfig, MoeConfig, RouterConfig

OLMOE, QWEN3_MOE, GLM4_MOE = "OlmoeForCausalLM", "Qwen3MoeForCausalLM", "Glm4MoeForCausalLM"
NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}
ATTENTION = {theirs: ours for theirs, ours in MATRICES.items() if ours.startswith("attention")}
MLP = {theirs: ours for theirs, ours in MATRICES.items() if ours.startswith("mlp")}
NEEDED = {
    OLMOE: ("num_experts", "num_experts_per_tok"),
    QWEN3_MOE: ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "head_dim", "num_key_value_heads"),
    GLM4_MOE: ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace",
               "routed_scaling_factor", "head_dim", "num_key_value_heads"),
}  # fmt: skip
"""Fields that transformers fills with numbers of its own where a config leaves them out."""


class MoeFormat:
    """A `trainer.hf.format.HfFormat`."""

    model_types: Mapping[str, str] = {OLMOE: "olmoe", QWEN3_MOE: "qwen3_moe", GLM4_MOE: "glm4_moe"}

    def architecture(self, config: MoeConfig) -> str:
        """The class of transformers that computes the same function. Raises: ValueError saying why there is none."""
        reasons = _reasons(config)
        if reasons:
            raise ValueError(f"no class of transformers computes this mixture of experts: {'; '.join(reasons)}")
        if config.router.score == "sigmoid":
            return GLM4_MOE
        return OLMOE if config.qk_norm == "all" else QWEN3_MOE

    def to_config(self, config: MoeConfig, eos: tuple[int, ...], bos: int) -> dict[str, Any]:
        """`config.json`."""
        kind, router, experts = self.architecture(config), config.router, config.experts
        stated = decoder_config(config, kind, self.model_types[kind], eos, bos)
        stated |= {"num_experts_per_tok": router.per_token, "norm_topk_prob": router.renormalize}
        if kind == OLMOE:
            return stated | {"num_experts": experts.count, "intermediate_size": experts.dim, "clip_qkv": None}
        stated |= {"moe_intermediate_size": experts.dim}
        if kind == QWEN3_MOE:
            dense = list(range(config.dense_layers))
            return stated | {"num_experts": experts.count, "decoder_sparse_step": 1, "mlp_only_layers": dense}
        return stated | {
            "n_routed_experts": experts.count,
            "n_shared_experts": -(-experts.shared_dim // experts.dim),
            "first_k_dense_replace": config.dense_layers,
            "routed_scaling_factor": router.scale,
            "n_group": 1,
            "topk_group": 1,
            "use_qk_norm": config.qk_norm == "head",
            "partial_rotary_factor": config.extras.rope_share,
        }

    def from_config(self, stated: Mapping[str, Any]) -> MoeConfig:
        """Our config of their `config.json`. Raises: ValueError for what our model does not compute, or a missing field."""
        kind = stated["architectures"][0]
        if "num_local_experts" in stated:  # how transformers 5 writes Qwen3-MoE's
            stated = {**stated, "num_experts": stated["num_local_experts"]}
        check_plain(kind, stated, NEEDED[kind])
        theta, scaling = read_rope(kind, stated, partial=kind == GLM4_MOE)
        groups = stated.get("n_group", 1), stated.get("topk_group", 1)
        sparse = stated.get("decoder_sparse_step", 1)
        dense = list(stated.get("mlp_only_layers") or range(stated.get("first_k_dense_replace", 0)))
        refused = {
            "rope_scaling": scaling is not None,
            "clip_qkv": stated.get("clip_qkv") is not None,
            "n_group, topk_group": groups != (1, 1),
            "decoder_sparse_step": sparse != 1,
            "mlp_only_layers": dense != list(range(len(dense))),
            "use_sliding_window": bool(stated.get("use_sliding_window", False)),
        }
        if any(refused.values()):
            name = next(name for name, bad in refused.items() if bad)
            raise ValueError(f"{kind} with {name} = {stated.get(name, groups)!r} is not computed by our model")
        fields = shared_fields(stated, theta)
        glm, olmoe = kind == GLM4_MOE, kind == OLMOE
        dim = stated["intermediate_size"] if olmoe else stated["moe_intermediate_size"]
        head, plain = stated.get("head_dim"), fields["hidden_dim"] // fields["num_heads"]
        return MoeConfig(
            **fields,
            experts=ExpertsConfig(
                stated["n_routed_experts" if glm else "num_experts"], dim, dim * stated["n_shared_experts"] if glm else 0
            ),
            router=RouterConfig(
                stated["num_experts_per_tok"],
                score="sigmoid" if glm else "softmax",
                bias_on="scores",
                renormalize=bool(stated.get("norm_topk_prob", glm)),
                scale=float(stated["routed_scaling_factor"]) if glm else 1.0,
                balance="quantile" if glm else "none",
            ),
            dense_layers=len(dense),
            qk_norm="all" if olmoe else "head" if not glm or stated.get("use_qk_norm", False) else "none",
            head_dim=None if head in (None, plain) else head,
            extras=ExtrasConfig(rope_share=float(rope_share(stated, 0.5)) if glm else 1.0),
        )

    def names(self, config: MoeConfig) -> HfNames:
        """Where the tensors lie."""
        d, e, h = config.hidden_dim, config.experts, config.head_size
        sizes = {
            "none": {},
            "head": {"attention.q_norm.weight": (h,), "attention.k_norm.weight": (h,)},
            "all": {
                "attention.q_norm.weight": (config.num_kv_heads, config.num_heads // config.num_kv_heads, h),
                "attention.k_norm.weight": (config.num_kv_heads, h),
            },
        }[config.qk_norm]
        norms = weights({theirs: f"{ours}.weight" for theirs, ours in (NORMS | (QK_NORMS if sizes else {})).items()})
        common = attention_shapes(config) | {"attention_norm.weight": (d,), "mlp_norm.weight": (d,), **sizes}
        inner = {
            "mlp.gate.weight": "experts.router.weight",
            "mlp.experts.{expert}.gate_proj.weight": "experts.w_gate",
            "mlp.experts.{expert}.up_proj.weight": "experts.w_up",
            "mlp.experts.{expert}.down_proj.weight": "experts.w_down",
        }
        shapes = {
            "experts.router.weight": (d, e.count),
            "experts.w_gate": (e.count, d, e.dim),
            "experts.w_up": (e.count, d, e.dim),
            "experts.w_down": (e.count, e.dim, d),
        }
        inputs = {"experts.router.weight": d, "experts.w_gate": d, "experts.w_up": d, "experts.w_down": e.dim}
        zeros, padded = {"experts.router.bias": (e.count,)}, {}
        if config.router.score == "sigmoid":
            inner["mlp.gate.e_score_correction_bias"] = "experts.router.bias"
            shapes, zeros = shapes | zeros, {}
            if e.shared_dim:
                own = {theirs.replace("mlp.", "mlp.shared_experts."): ours for theirs, ours in weights(MLP).items()}
                inner |= {theirs: ours.replace("mlp.", "experts.shared.") for theirs, ours in own.items()}
                shapes |= {"experts.shared.w_gate": (d, e.shared_dim), "experts.shared.w_up": (d, e.shared_dim)}
                shapes |= {"experts.shared.w_down": (e.shared_dim, d)}
                inputs |= {"experts.shared.w_gate": d, "experts.shared.w_up": d, "experts.shared.w_down": e.shared_dim}
                padded = {name: -e.shared_dim % e.dim for name in shapes if name.startswith("experts.shared.")}
        own_inputs = dict.fromkeys(ATTENTION.values(), d) | {"attention.w_o": config.num_heads * h}
        every = weights(ATTENTION) | norms
        mixed = HfStack(
            "blocks", config.dense_layers, config.num_expert_layers, every | inner, common | shapes, own_inputs | inputs,
            zeros, padded, e.count,
        )  # fmt: skip
        if not config.dense_layers:
            return HfNames(outer_names(config), (mixed,))
        m = config.intermediate_dim
        dense_shapes = {"mlp.w_gate": (d, m), "mlp.w_up": (d, m), "mlp.w_down": (m, d)}
        dense_inputs = {"mlp.w_gate": d, "mlp.w_up": d, "mlp.w_down": m}
        dense = HfStack("first", 0, config.dense_layers, every | weights(MLP), common | dense_shapes, own_inputs | dense_inputs)
        return HfNames(outer_names(config), (dense, mixed))


def _reasons(config: MoeConfig) -> list[str]:
    """Why no published class computes a config; empty if one does."""
    x, router, shared = config.extras, config.router, config.experts.shared_dim
    sigmoid, all_heads = router.score == "sigmoid", config.qk_norm == "all"
    biased = router.balance != "none"
    unsupported = {
        "extras.gated_norm_rank: no class has gated norms": x.gated_norm_rank > 0,
        "extras.exclude_self: no class takes a head's own value away": x.exclude_self,
        "extras.head_gate: no class has gates of heads": x.head_gate,
        "extras.long_short: no class has these windows and layers without rotary embeddings": x.long_short is not None,
        "experts.activation: no class has bilinear experts": config.experts.activation != "swiglu",
        "router.bias_on 'logits': GLM-4-MoE adds the bias to scores": sigmoid and router.bias_on != "scores",
        "qk_norm 'all' with a sigmoid router: GLM-4-MoE has norms of each head": sigmoid and all_heads,
        "router.balance with a softmax router: OLMoE and Qwen3-MoE have no bias": not sigmoid and biased,
        "experts.shared_dim with a softmax router: OLMoE and Qwen3-MoE have no shared expert": not sigmoid and shared > 0,
        "router.scale with a softmax router: OLMoE and Qwen3-MoE have none": not sigmoid and router.scale != 1,
        "extras.rope_share with a softmax router: OLMoE and Qwen3-MoE rotate whole heads": not sigmoid and x.rope_share != 1,
        "qk_norm 'none' with a softmax router: OLMoE and Qwen3-MoE have norms": not sigmoid and config.qk_norm == "none",
        "dense_layers with norms of all heads: OLMoE has none": not sigmoid and all_heads and config.dense_layers > 0,
        "head_dim with norms of all heads: OLMoE has none": not sigmoid and all_heads and config.head_dim is not None,
    }  # fmt: skip
    return [reason for reason, holds in unsupported.items() if holds]


MOE_FORMAT = MoeFormat()
