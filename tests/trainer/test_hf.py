"""Export to Hugging Face: equal logits by an independent forward pass, and back to equal bits."""

import json
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny import tiny_model, tiny_spec
from tokenizers import Tokenizer, models

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.config import to_jsonable
from lineage.writing.write import writing
from trainer.hf.convert import from_hf, from_hf_config, hf_config, to_hf
from trainer.hf.export import HF_MODEL, HfExportConfig, _save_shards, export_hf
from trainer.hf.format import LEAF
from trainer.hf.llama import FULL, SLIDING
from trainer.model.build import model_shapes
from trainer.model.transformer import Transformer
from trainer.spec.decoder import Llama3RopeScaling
from trainer.spec.llama import LlamaConfig
from trainer.spec.schedules import WarmupStableDecay

BASE = tiny_model(vocab_size=40, intermediate_dim=24, max_seq_len=32)
CONFIGS = {
    "llama": BASE,
    "llama 3": replace(BASE, rope_theta=500_000.0, rope_scaling=Llama3RopeScaling(original_max_seq_len=8), num_kv_heads=1),
    "mistral": replace(BASE, sliding_window=5, tie_embeddings=False),
    "qwen3": replace(BASE, qk_norm=True, sliding_window=4, tie_embeddings=False, num_kv_heads=4),
    "qwen3 of wide heads": replace(BASE, qk_norm=True, head_dim=14),
    "llama of narrow heads": replace(BASE, head_dim=6, tie_embeddings=False),
}
TOKENS = np.random.default_rng(0).integers(0, 40, 20)


def a_model(config: LlamaConfig) -> Transformer:
    """Every weight random, norms included: what is one everywhere hides a wrong name. By numpy, which compiles nothing."""
    shapes = model_shapes(config)
    dynamic, static = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    generator = np.random.default_rng(1)
    filled = jax.tree.map(lambda leaf: generator.normal(0.1, 0.3, leaf.shape).astype(np.float32), dynamic)
    return eqx.combine(filled, static)


def arrays_of(model: Transformer) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_array))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def their_logits(tensors: dict[str, np.ndarray], config: dict, tokens: np.ndarray) -> np.ndarray:
    """Logits [sequence, vocabulary] as transformers computes them (modeling_llama, modeling_qwen3), written out in float64."""
    t = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    heads, kv, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    window = config.get("sliding_window") or len(tokens)
    inverse = 1.0 / config["rope_theta"] ** (np.arange(0, size, 2) / size)
    if config["rope_scaling"]:
        s = config["rope_scaling"]
        wavelength = 2 * np.pi / inverse
        turns = s["original_max_position_embeddings"] / wavelength
        smooth = (turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
        between = (1 - smooth) * inverse / s["factor"] + smooth * inverse
        slow = wavelength > s["original_max_position_embeddings"] / s["low_freq_factor"]
        fast = wavelength < s["original_max_position_embeddings"] / s["high_freq_factor"]
        inverse = np.where(slow, inverse / s["factor"], np.where(fast, inverse, between))
    angles = np.outer(np.arange(len(tokens)), inverse)
    cos, sin = (np.concatenate([f(angles), f(angles)], axis=-1)[:, None] for f in (np.cos, np.sin))

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return weight * x / np.sqrt((x**2).mean(-1, keepdims=True) + config["rms_norm_eps"])

    def rotate(x: np.ndarray) -> np.ndarray:
        half = np.concatenate([-x[..., size // 2 :], x[..., : size // 2]], axis=-1)
        return x * cos + half * sin

    distance = np.arange(len(tokens))[:, None] - np.arange(len(tokens))[None]
    allowed = (distance >= 0) & (distance < window)
    x = t["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        y = norm(x, t[p + "input_layernorm.weight"])
        q, k, v = ((y @ t[f"{p}self_attn.{name}_proj.weight"].T).reshape(len(tokens), -1, size) for name in ("q", "k", "v"))
        if p + "self_attn.q_norm.weight" in t:
            q, k = norm(q, t[p + "self_attn.q_norm.weight"]), norm(k, t[p + "self_attn.k_norm.weight"])
        q, k = rotate(q), rotate(k)
        k, v = (np.repeat(z, heads // kv, axis=1) for z in (k, v))  # repeat_kv
        scores = np.where(allowed[None], np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        read = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v).reshape(len(tokens), -1)
        x = x + read @ t[p + "self_attn.o_proj.weight"].T
        y = norm(x, t[p + "post_attention_layernorm.weight"])
        gate = y @ t[p + "mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ t[p + "mlp.up_proj.weight"].T)) @ t[p + "mlp.down_proj.weight"].T
    head = t.get("lm_head.weight", t["model.embed_tokens.weight"])
    return norm(x, t["model.norm.weight"]) @ head.T


@pytest.mark.parametrize("name", CONFIGS)
def test_their_forward_pass_on_our_export_gives_our_logits(name: str) -> None:
    config = CONFIGS[name]
    model = a_model(config)
    theirs = json.loads(json.dumps(hf_config(config, (3,), 3)))
    logits = np.asarray(eqx.filter_jit(Transformer.__call__)(model, TOKENS[None].astype(np.int32)))[0]
    wanted = their_logits(to_hf(arrays_of(model), config), theirs, TOKENS)
    np.testing.assert_allclose(logits, wanted, rtol=2e-4, atol=2e-4 * np.abs(wanted).max())
    assert from_hf_config(theirs) == config


@pytest.mark.parametrize("name", CONFIGS)
def test_there_and_back_is_the_same_bits(name: str) -> None:
    arrays = arrays_of(a_model(CONFIGS[name]))
    back = from_hf(to_hf(arrays, CONFIGS[name]), CONFIGS[name])
    assert back.keys() == arrays.keys()
    assert all(np.array_equal(back[key], arrays[key]) for key in arrays)


YARN = {"factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 1e6}
QWEN3 = replace(BASE, qk_norm=True)
WINDOWS = {"use_sliding_window": True, "sliding_window": 4}


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (BASE, {"architectures": ["GPT2LMHeadModel"]}, "architecture 'GPT2LMHeadModel'"),
        (BASE, {"attention_bias": True}, "attention_bias = True"),
        (BASE, {"rope_scaling": {"rope_type": "yarn", **YARN}}, "rope_scaling = .*rope scaling 'yarn' changes every logit"),
        (BASE, {"rope_parameters": {"rope_type": "yarn", **YARN}}, "rope_parameters = .*rope scaling 'yarn'"),
        (BASE, {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rope_parameters = .*rope scaling 'linear'"),
        (BASE, {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_parameters = .*rope scaling 'dynamic'"),
        (BASE, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling = .*rope scaling 'linear'"),
        (BASE, {"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "lacks low_freq_factor, high_freq_factor"),
        (BASE, {"rope_parameters": {FULL: {"rope_theta": 1e4}}}, "the same in every layer"),
        (BASE, {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor = 0.5 in rope_parameters"),
        (BASE, {"layer_types": [FULL, SLIDING]}, r"layer_types = \['full_attention', 'sliding_attention'\]"),
        (QWEN3, {**WINDOWS, "max_window_layers": 1}, "max_window_layers = 1, num_hidden_layers = 2 is not computed"),
        (QWEN3, {"layer_types": [SLIDING] * 2}, "use_sliding_window = False.* one window for all layers or for none"),
        (CONFIGS["mistral"], {"layer_types": [FULL] * 2}, "sliding_window = 5, .*layer_types"),
    ],
)
def test_a_model_that_ours_does_not_compute_is_refused(config: LlamaConfig, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_hf_config(hf_config(config, (3,), 3) | change)


@pytest.mark.parametrize(("config", "name"), [(CONFIGS["mistral"], "sliding_window"), (QWEN3, "head_dim")])
def test_what_transformers_would_fill_in_has_to_be_said(config: LlamaConfig, name: str) -> None:
    published = hf_config(config, (3,), 3)
    del published[name]
    with pytest.raises(ValueError, match=f"without {name} in its config.json"):
        from_hf_config(published)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, {"rope_theta": 1e6}),
        ({"rope_scaling": {"type": "default"}}, {}),
        (
            {"rope_parameters": {"rope_type": "llama3", **YARN, "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
            {"rope_theta": 1e6, "rope_scaling": Llama3RopeScaling(4.0, 1.0, 4.0, 8)},
        ),
        (WINDOWS | {"max_window_layers": 0}, {"sliding_window": 4}),
        (WINDOWS | {"max_window_layers": 2}, {}),
        (WINDOWS | {"max_window_layers": 2, "layer_types": [SLIDING] * 2}, {"sliding_window": 4}),
        ({"sliding_window": 4}, {}),
    ],
)
def test_what_a_config_says_in_other_ways_is_read(change: dict, wanted: dict) -> None:
    assert from_hf_config(hf_config(QWEN3, (3,), 3) | change) == replace(QWEN3, **wanted)


def test_a_tied_model_may_say_its_matrix_twice_but_not_two_matrices() -> None:
    tensors = to_hf(arrays_of(a_model(BASE)), BASE)
    embedding = tensors["model.embed_tokens.weight"]
    assert from_hf(tensors | {"lm_head.weight": embedding.copy()}, BASE).keys() == from_hf(tensors, BASE).keys()
    with pytest.raises(ValueError, match=r"tie_word_embeddings, but lm_head\.weight is not model\.embed_tokens\.weight"):
        from_hf(tensors | {"lm_head.weight": embedding + 1e-3}, BASE)


def test_tensors_without_a_place_are_named() -> None:
    tensors = to_hf(arrays_of(a_model(BASE)), BASE)
    with pytest.raises(ValueError, match=r"not known \['model.layers.0.self_attn.q_proj.bias'\]"):
        from_hf(tensors | {"model.layers.0.self_attn.q_proj.bias": np.zeros(32)}, BASE)
    del tensors["model.norm.weight"]
    with pytest.raises(ValueError, match=r"missing \['model.norm.weight'\]"):
        from_hf(tensors, BASE)


def exported(root: Path, config: HfExportConfig) -> Artifact:
    """A checkpoint and a tokenizer as their stages leave them, and what the export stage makes of them."""
    store, model = Store(str(root)), a_model(BASE)
    schedule = WarmupStableDecay(peak_learning_rate=1e-2, warmup_steps=2, decay_frac=0.5)
    run = tiny_spec(name="r", model=BASE, schedule=schedule, num_steps=2, save_every_steps=2)
    spec = ArtifactSpec(("checkpoint",), None, "trainer.checkpoint", "2", {"run": to_jsonable(run), "step": 2})
    with writing(store, spec) as checkpoint:
        save_file(arrays_of(model), checkpoint.folder / "model.safetensors")
    vocab = {"<|endoftext|>": 0, "<|turn|>": 1} | {f"w{i}": i for i in range(2, 40)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="w2"))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|turn|>"])
    with writing(store, ArtifactSpec(("tokenizer",), None, "datakit.tokenizer", "1", {})) as out:
        (out.folder / "tokenizer.json").write_text(tokenizer.to_str())
        out.extra["tokenizer"] = {"vocab_size": 40, "eos": 0}
    refs = (checkpoint.artifact.ref("checkpoint"), out.artifact.ref("tokenizer"))
    with writing(store, ArtifactSpec(("hf",), None, HF_MODEL.name, HF_MODEL.version, to_jsonable(config), refs)) as made:
        export_hf(made, config, checkpoint.artifact, out.artifact)
    return made.artifact


def test_an_export_ends_texts_with_the_right_tokens_and_holds_the_weights(tmp_path: Path) -> None:
    folder = exported(tmp_path, HfExportConfig(end_tokens=("<|turn|>",))).folder()
    generation, config = (json.loads((folder / f"{name}.json").read_text()) for name in ("generation_config", "config"))
    assert generation == {"bos_token_id": 0, "eos_token_id": [0, 1]} and config["eos_token_id"] == [0, 1]
    back = from_hf(load_file(folder / "model.safetensors"), from_hf_config(config))
    assert np.array_equal(back[f".embedding{LEAF}"], arrays_of(a_model(BASE))[f".embedding{LEAF}"])
    assert json.loads((folder / "tokenizer_config.json").read_text())["eos_token"] == "<|endoftext|>"


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no ema\.safetensors"):
        exported(tmp_path / "a", HfExportConfig(weights="ema"))
    with pytest.raises(ValueError, match=r"'<\|im_end\|>' is not in tokenizer"):
        exported(tmp_path / "b", HfExportConfig(end_tokens=("<|im_end|>",)))
    with pytest.raises(ValueError, match="dtype 'int4'"):
        HfExportConfig(dtype="int4")  # pyrefly: ignore


def test_large_models_are_cut_into_shards_that_the_index_names(tmp_path: Path) -> None:
    tensors = {f"t{i}": np.full((10,), i, np.float32) for i in range(5)}
    _save_shards(tensors, tmp_path, limit=80)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 200 and set(index["weight_map"].values()) == {
        f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)
    }
    assert all(np.array_equal(load_file(tmp_path / file)[name], tensors[name]) for name, file in index["weight_map"].items())
