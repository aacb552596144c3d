"""OLMo 2: the second model family, held to transformers, to the paper, and to everything that is done with a model.

Two references. (1) `golden/olmo2_logits.npy` and `golden/olmo2_config.json` were recorded on 2026-11-23 by transformers
5.23.0 with torch 2.13.0+cpu (`Olmo2ForCausalLM`, eager attention, float32) over the weights of `golden_weights` and the tokens
of `GOLDEN_TOKENS`; neither package is a dependency of this project. (2) `paper_logits` is a slow numpy version in float64,
written from the paper (OLMo team 2024, arXiv 2501.00656, section 3.2).
"""

import json
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_run
from safetensors.numpy import save_file
from tiny_run import job_of, metrics_of

from lineage.config import from_jsonable, to_jsonable
from serving.server.engine import Engine, EngineSettings
from trainer.hf.convert import from_hf, from_hf_config, hf_config, to_hf
from trainer.hf.folder import read_hf_folder
from trainer.model.build import init_model, model_shapes
from trainer.model.transformer import Transformer
from trainer.optimizers.groups import groups
from trainer.scoring import load_scorer
from trainer.spec.config import RunSpec
from trainer.spec.olmo2 import Olmo2Config
from trainer.spec.optimizers import AdamHConfig, AdamWConfig, MuonConfig, OptimizerConfig
from trainer.train import train

GOLDEN = Path(__file__).parent / "golden"
CONFIG = Olmo2Config(
    vocab_size=40, hidden_dim=32, intermediate_dim=24, num_layers=2, num_heads=4, num_kv_heads=2, max_seq_len=32
)
GOLDEN_TOKENS = np.random.default_rng(1).integers(0, 40, (2, 20))


def golden_weights() -> dict[str, np.ndarray]:
    """Tensors in Hugging Face's form: names in sorted order, normal(0.1, 0.3) of seed 0, norms included."""
    d, m, kv = 32, 24, 16
    layer = {
        "mlp.down_proj": (d, m),
        "mlp.gate_proj": (m, d),
        "mlp.up_proj": (m, d),
        "post_attention_layernorm": (d,),
        "post_feedforward_layernorm": (d,),
        "self_attn.k_norm": (kv,),
        "self_attn.k_proj": (kv, d),
        "self_attn.o_proj": (d, d),
        "self_attn.q_norm": (d,),
        "self_attn.q_proj": (d, d),
        "self_attn.v_proj": (kv, d),
    }
    shapes = {f"model.layers.{i}.{name}.weight": shape for i in range(2) for name, shape in layer.items()}
    shapes |= {"lm_head.weight": (40, d), "model.embed_tokens.weight": (40, d), "model.norm.weight": (d,)}
    generator = np.random.default_rng(0)
    return {name: generator.normal(0.1, 0.3, shapes[name]).astype(np.float32) for name in sorted(shapes)}


def filled_model(config: Olmo2Config, arrays: dict[str, np.ndarray]) -> Transformer:
    dynamic, static = eqx.partition(model_shapes(config), lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    filled = jax.tree_util.tree_map_with_path(lambda path, _: jnp.asarray(arrays[jax.tree_util.keystr(path)]), dynamic)
    return eqx.combine(filled, static)


def arrays_of(model: Transformer) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_array))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


@pytest.fixture(scope="module")
def model() -> Transformer:
    return filled_model(CONFIG, from_hf(golden_weights(), CONFIG))


def paper_logits(t: dict[str, np.ndarray], config: Olmo2Config, tokens: np.ndarray) -> np.ndarray:
    """Logits [sequence, vocabulary], one head and one query at a time, in float64."""
    t = {name: tensor.astype(np.float64) for name, tensor in t.items()}
    size, group = config.head_size, config.num_heads // config.num_kv_heads
    pairs = size // 2
    frequencies = config.rope_theta ** (-np.arange(pairs) / pairs)

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return weight * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + config.norm_eps)

    def turned(x: np.ndarray, position: int) -> np.ndarray:
        """Pair i is (x[i], x[i + size / 2]), turned by position * frequency i."""
        z = (x[:pairs] + 1j * x[pairs:]) * np.exp(1j * position * frequencies)
        return np.concatenate([z.real, z.imag])

    x = t["model.embed_tokens.weight"][tokens]
    for layer in range(config.num_layers):
        w = {
            name.split(f"layers.{layer}.")[1].removesuffix(".weight"): a for name, a in t.items() if f"layers.{layer}." in name
        }
        q = norm(x @ w["self_attn.q_proj"].T, w["self_attn.q_norm"])  # over all heads together
        k = norm(x @ w["self_attn.k_proj"].T, w["self_attn.k_norm"])
        v = x @ w["self_attn.v_proj"].T
        read = np.zeros_like(q)
        for head in range(config.num_heads):
            own, shared = slice(head * size, (head + 1) * size), slice(head // group * size, (head // group + 1) * size)
            for at in range(len(tokens)):
                query = turned(q[at, own], at)
                scores = np.array([query @ turned(k[s, shared], s) for s in range(at + 1)]) / np.sqrt(size)
                weights = np.exp(scores - scores.max())
                read[at, own] = weights / weights.sum() @ v[: at + 1, shared]
        x = x + norm(read @ w["self_attn.o_proj"].T, w["post_attention_layernorm"])
        gate = x @ w["mlp.gate_proj"].T
        mlp = (gate / (1 + np.exp(-gate)) * (x @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
        x = x + norm(mlp, w["post_feedforward_layernorm"])
    return norm(x, t["model.norm.weight"]) @ t["lm_head.weight"].T


def test_logits_equal_those_that_transformers_computed(model: Transformer) -> None:
    ours = np.asarray(jax.jit(lambda tokens: model(tokens))(jnp.asarray(GOLDEN_TOKENS)))
    np.testing.assert_allclose(ours, np.load(GOLDEN / "olmo2_logits.npy"), rtol=0, atol=1e-5)


def test_logits_equal_the_paper_written_out(model: Transformer) -> None:
    ours = np.asarray(jax.jit(lambda tokens: model(tokens))(jnp.asarray(GOLDEN_TOKENS)))
    for row, tokens in zip(ours, GOLDEN_TOKENS, strict=True):
        np.testing.assert_allclose(row, paper_logits(golden_weights(), CONFIG, tokens), rtol=0, atol=1e-5)


def test_the_config_that_transformers_wrote_is_ours_and_ours_comes_back() -> None:
    assert from_hf_config(json.loads((GOLDEN / "olmo2_config.json").read_text())) == CONFIG
    assert from_hf_config(hf_config(CONFIG, (3,), 3)) == CONFIG
    wide = replace(CONFIG, num_kv_heads=4, tie_embeddings=True, rope_theta=1e4, norm_eps=1e-5)
    assert from_hf_config(json.loads(json.dumps(hf_config(wide, (3, 4), 0)))) == wide


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_bias": True}, "attention_bias = True"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "rope scaling 'yarn'"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 8}}, "rope scaling 'llama3'"
        ),
        ({"head_dim": 16}, "head_dim = 16 is not computed by our model; only 8 is"),
    ],
)  # fmt: skip
def test_what_is_no_olmo_2_of_ours_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_hf_config(hf_config(CONFIG, (3,), 3) | change)


def test_export_and_import_give_the_same_bits_and_the_same_model(tmp_path: Path, model: Transformer) -> None:
    save_file(to_hf(arrays_of(model), CONFIG), tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(hf_config(CONFIG, (3,), 3)))
    back = read_hf_folder(tmp_path)
    assert back.config == CONFIG
    ours, theirs = arrays_of(model), arrays_of(back.model)  # type: ignore[arg-type]
    assert ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert to_hf(ours, CONFIG).keys() == golden_weights().keys()
    assert all(np.array_equal(tensor, golden_weights()[name]) for name, tensor in to_hf(ours, CONFIG).items())


def test_parameters_are_counted_and_have_the_roles_that_optimizers_use(model: Transformer) -> None:
    assert sum(array.size for array in arrays_of(model).values()) == CONFIG.num_parameters
    roles = {jax.tree_util.keystr(path): role for path, role in jax.tree_util.tree_leaves_with_path(groups(model))}
    norms = {name for name in roles if "norm" in name}
    assert {name for name, role in roles.items() if role == "norm"} == norms and len(norms) == 5
    assert [name.split("[")[0] for name, role in roles.items() if role in ("embedding", "head")] == [".embedding", ".head"]


def test_serving_with_a_cache_generates_what_the_whole_model_does(model: Transformer) -> None:
    """Greedy, through the engine of `serving.server`: a prompt block, then one token at a time."""
    engine = Engine(model.decoder(), CONFIG, EngineSettings(rows=2, block_tokens=8, prefix_bytes=0))
    prompt, lane = GOLDEN_TOKENS[0, :6].tolist(), 32
    hidden, _ = engine.prefill(lane, 0, prompt, 0, None)
    served = [int(engine.next_log_probs(hidden, len(prompt) - 1).argmax())]
    while len(served) < 12:
        starts = np.array([len(prompt) + len(served) - 1, 0])
        served.append(int(engine.decode(lane, np.array([served[-1], 0]), starts)[0].argmax()))
    whole = list(prompt)
    logits = jax.jit(lambda tokens: model(tokens))
    for _ in served:
        padded = np.zeros((1, 32), int)
        padded[0, : len(whole)] = whole
        whole.append(int(np.asarray(logits(jnp.asarray(padded)))[0, len(whole) - 1].argmax()))
    assert served == whole[len(prompt) :]


RUN = replace(
    tiny_run.RUN,
    name="olmo2",
    model=Olmo2Config(50, 16, 32, 1, 2, 1, 16),
    num_steps=5,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [AdamWConfig(), MuonConfig(), AdamHConfig()], ids=lambda rule: type(rule).__name__)
def test_five_steps_and_a_resume_after_three_give_the_same_bytes(tmp_path: Path, optimizer: OptimizerConfig) -> None:
    run = replace(RUN, optimizer=optimizer, save_every_steps=3)
    whole = train(job_of(tmp_path / "whole", run))
    train(job_of(tmp_path / "cut", run, step=3))
    resumed = train(job_of(tmp_path / "cut", run))
    names = ["metrics.parquet", "model.safetensors", "optimizer.safetensors", "spec.json", "state.json"]
    assert [path.name for path in sorted(whole.files())] == names
    assert all(whole.file(name).read_bytes() == resumed.file(name).read_bytes() for name in names[1:])
    assert metrics_of(whole).equals(metrics_of(resumed)) and metrics_of(whole)["loss_nats"].is_finite().all()


def test_a_trained_checkpoint_is_scored_and_its_spec_comes_back(tmp_path: Path) -> None:
    checkpoint = train(job_of(tmp_path, RUN))
    scorer = load_scorer(checkpoint)
    tokens = np.arange(12) % 50
    logits = np.asarray(scorer.model(jnp.asarray(tokens[None])))[0]
    wanted = -np.asarray(jax.nn.log_softmax(logits))[np.arange(11), tokens[1:]]
    np.testing.assert_allclose(scorer.token_nll([tokens])[0], wanted, atol=1e-5)
    np.testing.assert_allclose(scorer.tail_nll([tokens], [4])[0], wanted[-4:], atol=1e-5)
    recorded = checkpoint.spec.config["run"]
    assert recorded["model"]["kind"] == "olmo2" and from_jsonable(RunSpec, recorded) == RUN
    assert "kind" not in to_jsonable(tiny_run.RUN)["model"] and "objective" not in to_jsonable(tiny_run.RUN)


def test_initial_weights_have_the_deviation_of_the_paper_at_every_depth() -> None:
    config = Olmo2Config(
        vocab_size=64, hidden_dim=64, intermediate_dim=128, num_layers=6, num_heads=4, num_kv_heads=4, max_seq_len=8
    )
    blocks = eqx.filter_jit(init_model)(config, key=jax.random.PRNGKey(0)).blocks.stacked
    for weight in (blocks.attention.w_q, blocks.attention.w_o, blocks.mlp.w_down):
        np.testing.assert_allclose(np.asarray(weight.array).std(axis=tuple(range(1, weight.array.ndim))), 0.02, rtol=0.06)
