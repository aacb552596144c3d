"""Published models as checkpoints: equal weights from Hugging Face folders and GGUF, and runs started from them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file, save_file
from tiny import tiny_model, tiny_spec
from tokenizers import AddedToken, Tokenizer

from datakit.tokens.tokenizer_files import TOKENIZER_FILES, TokenizerFilesConfig
from evals.tasks.export_check import special_tokens_wrong
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve, spec_of
from lineage.build.plan import build
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import Job, LaunchRecord, LaunchRequest
from lineage.order.history import imported_start, training_legs
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.writing.writer import Writer
from serving.tokenization import open_tokenizer
from trainer.hf.convert import from_hf, from_hf_config, hf_config
from trainer.hf.export import HF_MODEL, HfExportConfig
from trainer.hf.folder import read_hf_folder
from trainer.hf.gguf import LAYER, OUTER, read_gguf
from trainer.hf.import_model import HF_IMPORT, HfImportConfig
from trainer.scoring import load_scorer
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition
from trainer.train import train

END, TURN = "<|endoftext|>", "<|im_end|>"
TOKENS = [END, TURN, *"abcdefghijklmnopqrstuvwxyzĠ0123456789.", "ab", "abc"]
MERGES = ["a b", "ab c"]
MODEL = tiny_model(vocab_size=len(TOKENS), hidden_dim=64, intermediate_dim=96, max_seq_len=32, rope_theta=5_000.0)
TEMPLATE = "{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}"
QUANTIZED = {"token_embd": gguf.GGMLQuantizationType.Q8_0, "ffn_down": gguf.GGMLQuantizationType.Q4_1}


def published() -> dict[str, np.ndarray]:
    """Random tensors in Hugging Face's form."""
    rng, d, kv, mlp = np.random.default_rng(3), 64, 32, 96
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (len(TOKENS), d), "model.norm.weight": (d,)}
    for layer in range(MODEL.num_layers):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.{name}.weight": (d,) for name in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (n, d) for name, n in (("q", d), ("k", kv), ("v", kv), ("o", d))}
        shapes |= {f"{at}.mlp.gate_proj.weight": (mlp, d), f"{at}.mlp.up_proj.weight": (mlp, d)}
        shapes[f"{at}.mlp.down_proj.weight"] = (d, mlp)
    return {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(path: Path, tensors: Mapping[str, np.ndarray], **metadata: int | float | str) -> None:
    """As llama.cpp's converter writes a Llama: its names, rotary pairs interleaved, some tensors quantized."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(MODEL.num_layers)
    writer.add_context_length(MODEL.max_seq_len)
    writer.add_embedding_length(MODEL.hidden_dim)
    writer.add_feed_forward_length(MODEL.intermediate_dim)
    writer.add_head_count(MODEL.num_heads)
    writer.add_head_count_kv(MODEL.num_kv_heads)
    writer.add_rope_freq_base(MODEL.rope_theta)
    writer.add_layer_norm_rms_eps(MODEL.norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, *[1] * (len(TOKENS) - 2)])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
    for name, value in metadata.items():
        add[type(value)](f"llama.{name.replace('__', '.')}", value)
    names = {theirs: f"{ours}.weight" for ours, theirs in OUTER.items()}
    names |= {f"model.layers.{i}.{theirs}": f"blk.{i}.{ours}.weight" for i in range(2) for ours, theirs in LAYER.items()}
    for name, tensor in tensors.items():
        heads = {"q_proj": MODEL.num_heads, "k_proj": MODEL.num_kv_heads}.get(name.split(".")[-2])
        if heads is not None:  # the inverse of what a reader does, as convert_hf_to_gguf.py's `permute`
            rows, columns = tensor.shape
            tensor = tensor.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
        stored = names[name.removesuffix(".weight")]
        kind = next((kind for part, kind in QUANTIZED.items() if part in stored), None)
        writer.add_tensor(stored, tensor if kind is None else quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def a_tokenizer(folder: Path) -> Tokenizer:
    write_gguf(folder / "only-for-its-tokenizer.gguf", published())
    tokenizer = read_gguf(folder / "only-for-its-tokenizer.gguf").tokenizer
    (folder / "only-for-its-tokenizer.gguf").unlink()
    return tokenizer


@dataclass(frozen=True)
class Fetched:
    """A raw artifact of either form."""

    form: str
    rope_theta: float = MODEL.rope_theta
    padding: int = 0
    """Rows of the embedding behind those of tokens."""


def fetch(out: Writer, config: Fetched) -> None:
    folder = out.folder / "files"
    folder.mkdir()
    if config.form == "gguf":
        write_gguf(folder / "model.gguf", published())
        return
    tensors = published()
    embedding = "model.embed_tokens.weight"
    tensors[embedding] = np.pad(tensors[embedding], ((0, config.padding), (0, 0)))
    half = len(tensors) // 2
    for number, names in enumerate((list(tensors)[:half], list(tensors)[half:]), start=1):
        save_file({name: tensors[name] for name in names}, folder / f"model-0000{number}-of-00002.safetensors")
    model = replace(MODEL, rope_theta=config.rope_theta, vocab_size=MODEL.vocab_size + config.padding)
    stated = hf_config(model, (1,), 1)
    (folder / "config.json").write_text(json.dumps(stated))
    (folder / "tokenizer.json").write_text(a_tokenizer(out.folder).to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": TURN, "chat_template": TEMPLATE}))


FETCHED = Stage("tests.fetched", "1", fetch)


def imported(fetched: Fetched, **changes: object) -> Node:
    config = replace(HfImportConfig(document_end=END), **changes)  # pyrefly: ignore
    raw = Node(("raw",), f"{fetched.form}-{fetched.rope_theta}-{fetched.padding}", FETCHED, fetched)
    return Node(("models", "m"), None, HF_IMPORT, config, {"raw": raw})


def made(store: Store, node: Node) -> Artifact:
    for parent in node.inputs.values():
        if isinstance(parent, Node):
            made(store, parent)
    return build(store, node).artifact


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(str(tmp_path_factory.mktemp("store")))


def test_a_folder_of_safetensors_gives_its_very_weights(store: Store) -> None:
    model = made(store, imported(Fetched("safetensors")))
    expected = from_hf(published(), MODEL)
    actual = load_file(model.files("model.safetensors")[0])
    assert actual.keys() == expected.keys()
    assert all(np.array_equal(actual[name], expected[name]) for name in expected)
    assert model.manifest.extra["checkpoint"]["imported"]["form"] == "safetensors"


def test_gguf_gives_the_weights_that_its_storage_means_in_our_order(store: Store) -> None:
    """What is stored plainly comes back exactly, rotary order included; what is quantized, as its blocks decode."""
    actual = load_file(made(store, imported(Fetched("gguf"))).files("model.safetensors")[0])
    tensors = published()
    for name, kind in (("embed_tokens", QUANTIZED["token_embd"]), ("down_proj", QUANTIZED["ffn_down"])):
        for full in (n for n in tensors if name in n):
            tensors[full] = dequantize(quantize(tensors[full], kind), kind).reshape(tensors[full].shape)
            assert not np.array_equal(tensors[full], published()[full]), "the test quantizes nothing"
    expected = from_hf(tensors, MODEL)
    assert all(np.array_equal(actual[name], expected[name]) for name in expected)


def test_the_tokenizer_comes_along_and_reads_no_special_token_out_of_text(store: Store) -> None:
    model = made(store, imported(Fetched("gguf")))
    node = Node(("tokenizer", "m"), None, TOKENIZER_FILES, TokenizerFilesConfig(), {"model": imported(Fetched("gguf"))})
    tokenizer = build(store, node).artifact
    assert tokenizer.manifest.extra["tokenizer"] == {"vocab_size": len(TOKENS), "eos": 0}
    assert tokenizer.files("chat_template.jinja")[0].read_text() == TEMPLATE
    opened = Tokenizer.from_file(str(tokenizer.files("tokenizer.json")[0]))
    assert opened.encode("abc12").tokens == ["abc", "1", "2"]
    assert opened.encode(f"a{TURN}").ids[-1] == 1
    assert AddedToken(TURN, special=True, normalized=False) in opened.get_added_tokens_decoder().values()
    assert load_scorer(model).vocab_size == len(TOKENS)


def test_a_model_with_more_rows_than_tokens_is_read_with_its_own_tokenizer_and_no_other(store: Store) -> None:
    """Qwen3 has 151,936 rows for 151,669 tokens."""
    node = imported(Fetched("safetensors", padding=3))
    model, rows = made(store, node), len(TOKENS) + 3
    tokenizer = made(store, Node(("tokenizer", "padded"), None, TOKENIZER_FILES, TokenizerFilesConfig(), {"model": node}))
    assert load_scorer(model).vocab_size == rows
    for artifact in (model, tokenizer):
        assert open_tokenizer(artifact, rows)[0].get_vocab_size() == len(TOKENS)
        with pytest.raises(ValueError, match=f"has {len(TOKENS)} tokens for {rows} rows, the checkpoint's model {rows - 1}"):
            open_tokenizer(artifact, rows - 1)


def test_what_opens_a_text_of_a_published_model_is_what_its_import_names(store: Store) -> None:
    """Llama 2 and Mistral open with `<s>` and end with `</s>`."""
    node = imported(Fetched("safetensors"), document_start=TURN)
    tokenizer = Node(("tokenizer", "opened"), None, TOKENIZER_FILES, TokenizerFilesConfig(), {"model": node})
    for artifact in (made(store, node), made(store, tokenizer)):
        assert open_tokenizer(artifact, MODEL.vocab_size)[1] == TOKENS.index(TURN)
    export = Node(("hf", "opened"), None, HF_MODEL, HfExportConfig(), {"checkpoint": node, "tokenizer": tokenizer})
    folder = made(store, export).folder()
    for name in ("config.json", "generation_config.json"):
        stated = json.loads((folder / name).read_text())
        assert (stated["bos_token_id"], stated["eos_token_id"]) == (1, [0, 1])
    with pytest.raises(ValueError, match=r"document_start '<s>' is not a token"):
        made(store, imported(Fetched("safetensors"), document_start="<s>"))


def test_scores_do_not_depend_on_the_form(store: Store) -> None:
    """Both forms, where neither quantizes what the other keeps: the folder is given GGUF's decoded numbers."""
    sequence = np.array([0, 5, 7, 9, 2, 40])
    scores = [load_scorer(made(store, imported(Fetched(form)))).token_nll([sequence])[0] for form in ("gguf", "safetensors")]
    assert np.abs(scores[0] - scores[1]).max() < 0.5, "quantization alone moves a score so far: other weights, or order"
    assert not np.array_equal(*scores)


@pytest.mark.parametrize("form", ["gguf", "safetensors"])
def test_an_imported_model_is_exported_as_the_same_model_with_its_own_tokenizer(store: Store, form: str) -> None:
    model = imported(Fetched(form))
    tokenizer = Node(("tokenizer", form), None, TOKENIZER_FILES, TokenizerFilesConfig(), {"model": model})
    export = Node(("hf", form), None, HF_MODEL, HfExportConfig(), {"checkpoint": model, "tokenizer": tokenizer})
    folder = made(store, export).folder()
    exported = read_hf_folder(folder)
    assert (exported.config, exported.end_tokens) == (MODEL, (0, 1)), "the document's end first, then the turn's"
    kept = load_file(made(store, model).files("model.safetensors")[0])
    again = from_hf(load_file(folder / "model.safetensors"), MODEL)
    assert again.keys() == kept.keys() and all(np.array_equal(again[name], kept[name]) for name in kept)
    assert json.loads((folder / "tokenizer_config.json").read_text())["eos_token"] == TURN
    assert special_tokens_wrong(made(store, export), made(store, tokenizer)) == []


def test_an_export_is_a_job_that_a_launcher_runs_where_it_likes(store: Store) -> None:
    model, launched = imported(Fetched("gguf")), []
    tokenizer = Node(("tokenizer", "gguf"), None, TOKENIZER_FILES, TokenizerFilesConfig(), {"model": model})
    inputs = {"checkpoint": model, "tokenizer": tokenizer}
    export = Node(("hf", "launched"), None, HF_MODEL, HfExportConfig(dtype="bfloat16"), inputs, ("cpu",))
    for parent in export.parents():
        made(store, parent)

    def launcher(launch: LaunchRequest) -> LaunchRecord:
        launched.append(launch)
        return run_subprocess(launch)

    built = build(store, export, launcher=launcher)
    assert [(launch.module, launch.hardware) for launch in launched] == [("trainer.export", ("cpu",))]
    config = json.loads((built.artifact.folder() / "config.json").read_text())
    assert config["torch_dtype"] == "bfloat16", "its config comes by way of the job file"


def test_what_cannot_be_imported_is_refused_with_what_is_wrong(store: Store) -> None:
    with pytest.raises(ValueError, match=r"document_end '<eos>' is not a token"):
        made(store, imported(Fetched("gguf"), document_end="<eos>"))
    with pytest.raises(ValueError, match=r"max_seq_len 64 is longer than the model's own 32"):
        made(store, imported(Fetched("gguf"), max_seq_len=64))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}, "llama.rope.scaling.type is 'yarn' with a factor of 4"),
        ({"rope__scaling__factor": 2.0}, "llama.rope.scaling.type is 'linear' with a factor of 2"),
        ({"rope__scale_linear": 2.0}, "'linear' with a factor of 2, which changes every logit"),
        ({"rope__dimension_count": 8}, "llama.rope.dimension_count is 8; our model computes 16, with heads of 16"),
        ({"attention__value_length": 8}, "llama.attention.value_length is 8; our model computes 16"),
        ({"attention__sliding_window": 8}, "llama.attention.sliding_window is 8; our model computes 0"),
        ({"expert_count": 4}, "llama.expert_count is 4"),
    ],
)
def test_gguf_that_says_what_ours_does_not_compute_is_refused(metadata: dict, message: str, tmp_path: Path) -> None:
    """Its tensors are those of a plain Llama, all of them."""
    write_gguf(tmp_path / "model.gguf", published(), **metadata)
    with pytest.raises(ValueError, match=message):
        read_gguf(tmp_path / "model.gguf")


def test_gguf_says_how_wide_heads_are_and_that_nothing_is_scaled(tmp_path: Path) -> None:
    plain = {"rope__scaling__type": "none", "rope__scaling__factor": 4.0, "rope__dimension_count": 16}
    write_gguf(tmp_path / "model.gguf", published(), attention__key_length=16, attention__value_length=16, **plain)
    assert from_hf_config(read_gguf(tmp_path / "model.gguf").config) == MODEL


def run_from(fetched: Fetched, **changes: object) -> tuple[RunSpec, Node]:
    start = WarmStart(**changes)  # pyrefly: ignore
    return tiny_spec(
        name="continued",
        model=MODEL,
        batch_size=2,
        num_steps=3,
        save_every_steps=3,
        schedule=WarmupStableDecay(peak_learning_rate=1e-3, warmup_steps=1, decay_frac=0.5),
        start=start,
    ), imported(fetched)


def write_text(out: Writer, config: Fetched) -> None:
    tokens = np.random.default_rng(0).integers(2, len(TOKENS), 400)
    shard = write_token_shard(out.folder, "s", [("0" * 32, tokens)], "uint16")
    out.facts["tokens"] = tokens_extra("text", "uint16", len(TOKENS), "tok", None, None, [shard])


def trained(store: Store, run: RunSpec, start: Node) -> Artifact:
    cache = Node(("cache",), None, Stage("tests.tokens", "1", write_text), Fetched("gguf"))
    mixture = Node(("mixture",), None, MIXTURE, MixtureConfig("m", (Phase(0, {"text": 1.0}),), seed=1), {"caches": (cache,)})
    build(store, cache), build(store, mixture), made(store, start)
    inputs = {"mixture": mixture, "start": start}
    node = Node(("runs", run.name, "checkpoint"), step_partition(run.num_steps), CHECKPOINT, CheckpointConfig(run, 3), inputs)
    return train(Job(store, spec_of(store, node), {name: resolve(store, each) for name, each in inputs.items()}, "code", ""))


def test_a_run_starts_from_it_and_its_history_ends_there(store: Store) -> None:
    checkpoint = trained(store, *run_from(Fetched("gguf")))
    assert [leg.num_steps for leg in training_legs(checkpoint)] == [3], "a published model has no leg of training here"
    origin = imported_start(checkpoint)
    assert origin is not None
    assert origin.name == "models/m"
    before, after = (load_file(each.files("model.safetensors")[0]) for each in (origin, checkpoint))
    assert before.keys() == after.keys()
    moved = {name: np.abs(before[name] - after[name]).max() for name in before}
    assert all(0 < change < 0.01 for change in moved.values()), moved


def test_a_field_that_no_array_shows_must_be_the_same_or_declared(store: Store) -> None:
    other = Fetched("safetensors", rope_theta=20_000.0)
    with pytest.raises(ValueError, match=r"model.rope_theta is 5000.0, in models/m it is 20000.0; .* run.start.changed_fields"):
        trained(store, *run_from(other))
    assert trained(store, *run_from(other, changed_fields=("rope_theta",))).manifest.extra["checkpoint"]["step"] == 3
