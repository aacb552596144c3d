"""What a family says of its Hugging Face format, and the parts that Llama-like families share. Imports no JAX.

Our weights are `[layers, in axes..., out axes...]` with every layer in one array; theirs are `[out, in]`, one tensor a layer.
Rotary embeddings have the same half-split layout on both sides, and their head `i` is our head (i // group, i % group).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainer.spec.decoder import DecoderConfig, Llama3RopeScaling

LEAF = "[<flat index 0>]"
"""How JAX's key path names the one array of a haliax `NamedArray`."""
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
MATRICES = {
    "self_attn.q_proj": "attention.w_q",
    "self_attn.k_proj": "attention.w_k",
    "self_attn.v_proj": "attention.w_v",
    "self_attn.o_proj": "attention.w_o",
    "mlp.gate_proj": "mlp.w_gate",
    "mlp.up_proj": "mlp.w_up",
    "mlp.down_proj": "mlp.w_down",
}
QK_NORMS = {"self_attn.q_norm": "attention.q_norm", "self_attn.k_norm": "attention.k_norm"}
LLAMA3_FIELDS = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


@dataclass(frozen=True)
class HfStack:
    """The place of the tensors of some layers in one of our stacks."""

    name: str
    """Our field of the stack: `blocks`."""
    first: int
    """Their number of our first layer."""
    count: int
    layer: Mapping[str, str]
    """Their name within a layer (`mlp.up_proj.weight`) to ours within the stack (`mlp.w_up`). A name with `{expert}` stands for
    a tensor an expert, which are one array of ours."""
    shapes: Mapping[str, tuple[int, ...]]
    """Shape of one of our layers, by our name."""
    inputs: Mapping[str, int]
    """Inputs of our matrices, by our name: the product of the leading axes that they read from."""
    zeros: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Our arrays that they lack and that must be zero."""
    padded: Mapping[str, int] = field(default_factory=dict)
    """How much wider than ours their tensor is, by our name; the rest is zeros."""
    experts: int = 0

    def places(self) -> Iterator[tuple[str, str, int, int | None]]:
        """(their full name, ours, our layer, expert or None) of every tensor."""
        for layer in range(self.count):
            for theirs, ours in self.layer.items():
                each = range(self.experts) if "{expert}" in theirs else (None,)
                for expert in each:
                    yield f"model.layers.{self.first + layer}.{theirs.replace('{expert}', str(expert))}", ours, layer, expert


@dataclass(frozen=True)
class HfNames:
    """The place of each of their tensors in our arrays."""

    outer: Mapping[str, str]
    """Their name to the key path of our array, for what is not in a layer."""
    stacks: tuple[HfStack, ...]


class HfFormat(Protocol):
    """One family's format, both ways."""

    model_types: Mapping[str, str]
    """`model_type` by architecture (`LlamaForCausalLM`); the architectures are those that `from_config` reads."""

    def architecture(self, config: Any) -> str:
        """The class of transformers that computes the same function."""
        ...

    def to_config(self, config: Any, eos: tuple[int, ...], bos: int) -> dict[str, Any]:
        """`config.json`."""
        ...

    def from_config(self, stated: Mapping[str, Any]) -> Any:
        """Our config of their `config.json`. Raises: ValueError for what our model does not compute."""
        ...

    def names(self, config: Any) -> HfNames:
        """Where the tensors lie."""
        ...


def decoder_names(config: DecoderConfig, norms: Mapping[str, str], norm_shapes: Mapping[str, tuple[int, ...]]) -> HfNames:
    """Names of a family with the usual matrices; `norms` maps their norms to ours, `norm_shapes` is by our name."""
    d, m = config.hidden_dim, config.intermediate_dim
    shapes = {
        **attention_shapes(config),
        "mlp.w_gate": (d, m),
        "mlp.w_up": (d, m),
        "mlp.w_down": (m, d),
        **{f"{ours}.weight": shape for ours, shape in norm_shapes.items()},
    }
    inputs = dict.fromkeys(MATRICES.values(), d) | {"attention.w_o": config.num_heads * config.head_size, "mlp.w_down": m}
    layer = weights(MATRICES | {theirs: f"{ours}.weight" for theirs, ours in norms.items()})
    return HfNames(outer_names(config), (HfStack("blocks", 0, config.num_layers, layer, shapes, inputs),))


def weights(names: Mapping[str, str]) -> dict[str, str]:
    """Their modules as their weights."""
    return {f"{theirs}.weight": ours for theirs, ours in names.items()}


def outer_names(config: DecoderConfig) -> dict[str, str]:
    """Embedding, last norm, and the head if it is not the embedding."""
    outer = {EMBEDDING: f".embedding{LEAF}", "model.norm.weight": f".norm.weight{LEAF}"}
    return outer if config.tie_embeddings else outer | {HEAD: f".head{LEAF}"}


def attention_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of the four projections of one of our layers."""
    d, h, kv = config.hidden_dim, config.head_size, config.num_kv_heads
    group = config.num_heads // kv
    return {
        "attention.w_q": (d, kv, group, h),
        "attention.w_k": (d, kv, h),
        "attention.w_v": (d, kv, h),
        "attention.w_o": (kv, group, h, d),
    }


def decoder_config(
    config: DecoderConfig,
    architecture: str,
    model_type: str,
    eos: tuple[int, ...],
    bos: int,
    rope_scaling: Llama3RopeScaling | None = None,
) -> dict[str, Any]:
    """The fields of `config.json` that Llama-like families share. `eos`: every id that ends a text, the document end first."""
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.intermediate_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_size,
        "max_position_embeddings": config.max_seq_len,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": _rope_scaling(rope_scaling),
        "tie_word_embeddings": config.tie_embeddings,
        "hidden_act": "silu",
        "attention_bias": False,
        "initializer_range": config.initializer_range,
        "bos_token_id": bos,
        "eos_token_id": list(eos) if len(eos) > 1 else eos[0],
        "use_cache": True,
        "torch_dtype": "float32",
    }


def check_plain(architecture: str, stated: Mapping[str, Any], needed: tuple[str, ...] = ()) -> None:
    """Raises: ValueError for biases, another activation than silu, or a field that is needed and missing.

    Needed are fields that transformers fills with numbers of its own where a config leaves them out.
    """
    refused = {
        "attention_bias": stated.get("attention_bias", False),
        "mlp_bias": stated.get("mlp_bias", False),
        "hidden_act": stated.get("hidden_act", "silu") != "silu",
    }
    if any(refused.values()):
        name = next(name for name, bad in refused.items() if bad)
        raise ValueError(f"{architecture} with {name} = {stated.get(name)!r} is not computed by our model")
    if missing := [name for name in needed if name not in stated]:
        raise ValueError(
            f"{architecture} without {missing[0]} in its config.json: add the field, because transformers' default would make "
            "it another model"
        )


def shared_fields(stated: Mapping[str, Any], rope_theta: float) -> dict[str, Any]:
    """The fields of a `DecoderConfig` that a `config.json` states."""
    heads = stated["num_attention_heads"]
    return {
        "vocab_size": stated["vocab_size"],
        "hidden_dim": stated["hidden_size"],
        "intermediate_dim": stated["intermediate_size"],
        "num_layers": stated["num_hidden_layers"],
        "num_heads": heads,
        "num_kv_heads": stated.get("num_key_value_heads") or heads,
        "max_seq_len": stated["max_position_embeddings"],
        "rope_theta": rope_theta,
        "norm_eps": stated["rms_norm_eps"],
        "tie_embeddings": stated.get("tie_word_embeddings", False),
        "initializer_range": stated.get("initializer_range", 0.02),
    }


def read_rope(architecture: str, stated: Mapping[str, Any], *, partial: bool = False) -> tuple[float, Llama3RopeScaling | None]:
    """(theta, scaling) of `rope_parameters` (transformers 5) or of `rope_theta` and `rope_scaling` (before).

    The oldest form says `type` for `rope_type`. Raises: ValueError for a scaling that our model does not compute, and for heads
    that are rotated in part unless `partial`.
    """
    theta, scaling = float(stated.get("rope_theta") or 10_000.0), None
    for where in ("rope_scaling", "rope_parameters"):
        fields = stated.get(where) or {}
        name = fields.get("rope_type", fields.get("type", "default"))
        if name not in ("default", "llama3") or any(isinstance(value, Mapping) for value in fields.values()):
            raise ValueError(
                f"{architecture} with {where} = {dict(fields)} is not computed by our model: rope scaling {name!r} changes "
                "every logit; only 'default' and 'llama3', the same in every layer, are computed"
            )
        if name == "llama3":
            scaling = _our_scaling(where, fields)
        theta = float(fields.get("rope_theta") or theta)
    for where, fields in _rope_places(stated).items():
        share = fields.get("partial_rotary_factor")
        if not partial and share not in (None, 1, 1.0):
            raise ValueError(
                f"{architecture} with partial_rotary_factor = {share!r} in {where} is not computed by our model; only 1.0 is"
            )
    return theta, scaling


def rope_share(stated: Mapping[str, Any], default: float) -> float:
    """`partial_rotary_factor`, which a config may state in several places."""
    shares = [fields.get("partial_rotary_factor") for fields in _rope_places(stated).values()]
    shares_found = {share for share in shares if share is not None}
    if len(shares_found) > 1:
        raise ValueError(f"config.json states several partial_rotary_factor: {sorted(shares_found)}; keep the one that holds")
    return next(iter(shares_found), default)


def _rope_places(stated: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Where a config may say how heads are rotated."""
    return {"config.json": stated, **{name: stated.get(name) or {} for name in ("rope_scaling", "rope_parameters")}}


def _rope_scaling(scaling: Llama3RopeScaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_max_seq_len,
    }


def _our_scaling(where: str, fields: Mapping[str, Any]) -> Llama3RopeScaling:
    if missing := [name for name in LLAMA3_FIELDS if name not in fields]:
        raise ValueError(f"{where} = {dict(fields)} lacks {', '.join(missing)}, which rope scaling 'llama3' needs")
    factor, low, high, length = (fields[name] for name in LLAMA3_FIELDS)
    return Llama3RopeScaling(factor, low, high, length)
