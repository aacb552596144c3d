"""Published mixtures of experts, both ways: logits are those of transformers, and what has no published class is refused.

`golden/NAME_logits.npy` and `golden/NAME_config.json` were recorded on 2026-11-24 by transformers 5.23.0 with torch 2.13.0
(`OlmoeForCausalLM`, `Qwen3MoeForCausalLM` and `Glm4MoeForCausalLM`, eager attention, float32) over `golden_tensors` and the
tokens of `GOLDEN_TOKENS`; neither package is a dependency of this project.
"""

import json
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file
from tiny_moe import EVERYTHING, tiny_moe

from serving.server.engine import Engine, EngineSettings
from trainer.hf.convert import architecture, from_hf, from_hf_config, hf_config, to_hf
from trainer.hf.folder import read_hf_folder
from trainer.hf.format import LEAF
from trainer.model.build import model_shapes
from trainer.model.transformer import Transformer
from trainer.spec.moe import ExpertsConfig, ExtrasConfig, MoeConfig, RouterConfig

GOLDEN = Path(__file__).parent / "golden"
GOLDEN_TOKENS = np.random.default_rng(1).integers(0, 40, (2, 20))
NAMES = ("olmoe", "qwen3_moe", "glm4_moe")
GLM = RouterConfig(2, bias_on="scores", renormalize=True, scale=2.5)


def config_of(name: str) -> MoeConfig:
    config = from_hf_config(json.loads((GOLDEN / f"{name}_config.json").read_text()))
    assert isinstance(config, MoeConfig)
    return config


def array_shapes(config: MoeConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of our arrays by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(model_shapes(config))
    return {jax.tree_util.keystr(path): leaf.shape for path, leaf in leaves if hasattr(leaf, "shape")}


def golden_tensors(config: MoeConfig) -> dict[str, np.ndarray]:
    """Tensors in Hugging Face's form: names in sorted order, normal(0.1, 0.3) of seed 0, norms and bias included."""
    tensors = to_hf({path: np.zeros(shape, np.float32) for path, shape in array_shapes(config).items()}, config)
    rng = np.random.default_rng(0)
    return {name: rng.normal(0.1, 0.3, tensors[name].shape).astype(np.float32) for name in sorted(tensors)}


def opened(folder: Path, tensors: dict[str, np.ndarray], stated: dict) -> Transformer:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(stated))
    model = read_hf_folder(folder).model
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers_and_the_way_back_is_exact(name: str, tmp_path: Path) -> None:
    stated, config = json.loads((GOLDEN / f"{name}_config.json").read_text()), config_of(name)
    tensors = golden_tensors(config)
    model = opened(tmp_path / "theirs", tensors, stated)
    wanted = np.load(GOLDEN / f"{name}_logits.npy")
    np.testing.assert_allclose(model(jnp.asarray(GOLDEN_TOKENS)), wanted, atol=1e-4, rtol=0)
    assert architecture(config) == stated["architectures"][0]
    again = to_hf(from_hf(tensors, config), config)
    assert again.keys() == tensors.keys()
    for key, tensor in tensors.items():
        np.testing.assert_array_equal(again[key], tensor, err_msg=key)
    assert from_hf_config(hf_config(config, (0,), 0)) == config


def test_the_server_decodes_what_the_whole_row_gives(tmp_path: Path) -> None:
    config = config_of("glm4_moe")
    model = opened(tmp_path / "model", golden_tensors(config), hf_config(config, (0,), 0))
    engine = Engine(model.decoder(), config, EngineSettings(rows=2, block_tokens=8, prefix_bytes=0))
    prompt, lane = GOLDEN_TOKENS[0, :6].tolist(), 32
    hidden, _ = engine.prefill(lane, 0, prompt, 0, None)
    served = [int(engine.next_log_probs(hidden, len(prompt) - 1).argmax())]
    while len(served) < 4:
        starts = np.array([len(prompt) + len(served) - 1, 0])
        served.append(int(engine.decode(lane, np.array([served[-1], 0]), starts)[0].argmax()))
    logits = model(jnp.asarray([prompt + served]))
    assert np.argmax(logits[0, len(prompt) - 1 : -1], axis=1).tolist() == served


def test_a_shared_expert_that_does_not_divide_is_padded_with_zeros(tmp_path: Path) -> None:
    config = replace(config_of("glm4_moe"), experts=ExpertsConfig(6, 12, shared_dim=17), dense_layers=0)
    rng = np.random.default_rng(2)
    arrays = {path: rng.normal(0.1, 0.3, shape).astype(np.float32) for path, shape in array_shapes(config).items()}
    tensors, stated = to_hf(arrays, config), hf_config(config, (0,), 0)
    assert tensors["model.layers.0.mlp.shared_experts.up_proj.weight"].shape == (24, 32)
    assert stated["n_shared_experts"] == 2
    wide = opened(tmp_path / "wide", tensors, stated)
    shapes, rest = eqx.partition(model_shapes(config), lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    filled = jax.tree_util.tree_map_with_path(lambda path, _: jnp.asarray(arrays[jax.tree_util.keystr(path)]), shapes)
    tokens = jnp.asarray(GOLDEN_TOKENS[:1])
    np.testing.assert_allclose(wide(tokens), eqx.combine(filled, rest)(tokens), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "router.bias_on 'logits'"),
        (
            {"router": GLM, "extras": EVERYTHING},
            "gated_norm_rank.*exclude_self.*head_gate.*long_short",
        ),
        ({"router": GLM, "experts": ExpertsConfig(8, 24, activation="bilinear")}, "experts.activation"),
        ({"router": RouterConfig(2, score="softmax", balance="none")}, "experts.shared_dim with a softmax router"),
        ({"router": RouterConfig(2, score="softmax"), "experts": ExpertsConfig(8, 24)}, "router.balance with a softmax router"),
    ],
)
def test_a_model_without_a_published_class_is_refused_with_the_reason(changes: dict, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        architecture(tiny_moe(**changes))
    assert architecture(tiny_moe(router=GLM, extras=ExtrasConfig(rope_share=0.5))) == "Glm4MoeForCausalLM"


def test_a_bias_that_a_class_does_not_have_is_refused() -> None:
    config = config_of("olmoe")
    arrays = from_hf(golden_tensors(config), config)
    arrays[f".blocks.stacked.experts.router.bias{LEAF}"] += 1
    with pytest.raises(ValueError, match="OlmoeForCausalLM has none"):
        to_hf(arrays, config)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("glm4_moe", {"n_group": 2}, "n_group"),
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ("qwen3_moe", {"mlp_only_layers": [1]}, "mlp_only_layers"),
    ],
)
def test_what_our_model_does_not_compute_is_refused(name: str, change: dict, message: str) -> None:
    stated = json.loads((GOLDEN / f"{name}_config.json").read_text())
    with pytest.raises(ValueError, match=message):
        from_hf_config(stated | change)
