"""Our exported models in `transformers` itself: the same logits, for every architecture that we export to.

    PYTHONPATH=. .venv/bin/python benchmarks/hf_parity.py --transformers /path/to/python [--checkpoint NAME]

transformers and torch are no dependency of the project, so the second half runs in another environment, whose Python is given
(`pip install torch transformers safetensors`). Random models of each kind by default; with `--checkpoint` a trained one too.
Prints the largest difference of a logit, against the largest logit, and whether the most likely token is the same everywhere.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

LENGTH = 96
LOAD = """
import json, sys
from pathlib import Path
import numpy as np, torch, transformers
print("transformers", transformers.__version__, "torch", torch.__version__)
for folder in sorted(Path(sys.argv[1]).iterdir()):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = torch.from_numpy(np.load(folder / "tokens.npy").astype(np.int64))
    with torch.no_grad():
        theirs = model(tokens).logits.numpy()
    ours = np.load(folder / "logits.npy")
    off, top = np.abs(ours - theirs).max(), np.abs(theirs).max()
    same = float((ours.argmax(-1) == theirs.argmax(-1)).mean())
    ends = model.generation_config.eos_token_id
    result = f"largest difference {off:.2e} of {top:.1f}; same argmax {same:.4f}; ends {ends}"
    print(f"{folder.name:<24} {type(model).__name__:<20} {result}")
    if (folder / "tokenizer.json").exists():
        text = "The first law of motion says: 12345 bytes.\\n"
        ids = transformers.AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"]
        print(f"{'':<24} tokenizer round trip: {transformers.AutoTokenizer.from_pretrained(folder).decode(ids) == text}")
    if off > 1e-3 * top:
        raise SystemExit(f"{folder.name}: logits differ by {off}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transformers", required=True, help="Python of an environment with torch and transformers")
    parser.add_argument("--checkpoint", help="name, address or folder of a checkpoint artifact")
    parser.add_argument("--root", help="root of its store; default: the lab's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hf-parity-") as folder:
        write_random(Path(folder))
        if options.checkpoint:
            write_trained(Path(folder) / "trained", options.checkpoint, options.root)
        sys.exit(subprocess.run([options.transformers, "-c", LOAD, folder], check=False).returncode)


def write_random(root: Path) -> None:
    """A model of each architecture with random weights, its tokens and our logits of them."""
    import equinox as eqx
    import jax
    from safetensors.numpy import save_file

    from trainer.hf.convert import hf_config, to_hf
    from trainer.model.build import model_shapes
    from trainer.model.transformer import Transformer
    from trainer.spec.decoder import Llama3RopeScaling
    from trainer.spec.llama import LlamaConfig
    from trainer.spec.models import ModelConfig
    from trainer.spec.olmo2 import Olmo2Config

    base = LlamaConfig(
        vocab_size=512, hidden_dim=128, intermediate_dim=256, num_layers=3, num_heads=8, num_kv_heads=2, max_seq_len=256
    )
    scaling = Llama3RopeScaling(original_max_seq_len=32)
    configs: dict[str, ModelConfig] = {
        "llama, tied": base,
        "llama, untied": replace(base, tie_embeddings=False, num_kv_heads=8),
        "llama 3 rope": replace(base, rope_theta=500_000.0, rope_scaling=scaling),
        "mistral window": replace(base, sliding_window=17),
        "qwen3": replace(base, qk_norm=True, tie_embeddings=False),
        "qwen3 window": replace(base, qk_norm=True, sliding_window=17),
        "qwen3 wide heads": replace(base, qk_norm=True, head_dim=32),
        "llama narrow heads": replace(base, head_dim=8),
        "olmo2": Olmo2Config(512, 128, 256, 3, 8, 2, 256),
        "olmo2, tied": Olmo2Config(512, 128, 256, 3, 8, 8, 256, rope_theta=10_000.0, norm_eps=1e-5, tie_embeddings=True),
    }
    for number, (name, config) in enumerate(configs.items()):
        shapes = model_shapes(config)
        dynamic, static = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
        generator = np.random.default_rng(number)
        filled = jax.tree.map(lambda leaf, draw=generator: draw.normal(0.05, 0.25, leaf.shape).astype(np.float32), dynamic)
        leaves = jax.tree_util.tree_leaves_with_path(filled)
        tokens = generator.integers(0, config.vocab_size, (2, LENGTH)).astype(np.int32)
        folder = root / name.replace(", ", "-").replace(" ", "-")
        folder.mkdir()
        save_file(
            to_hf({jax.tree_util.keystr(path): leaf for path, leaf in leaves}, config),
            folder / "model.safetensors",
            metadata={"format": "pt"},
        )
        (folder / "config.json").write_text(json.dumps(hf_config(config, (3,), 3)))
        np.save(folder / "tokens.npy", tokens)
        np.save(folder / "logits.npy", np.asarray(eqx.filter_jit(Transformer.__call__)(eqx.combine(filled, static), tokens)))


def write_trained(folder: Path, checkpoint: str, root: str | None) -> None:
    """The export of a checkpoint by its stage, and our logits of a line of random tokens."""
    import shutil

    import equinox as eqx

    from lineage.artifact.locate import locate
    from lineage.artifact.spec import ArtifactSpec
    from lineage.artifact.store import Store
    from lineage.writing.write import writing
    from marin_assets.cli.show_lineage import stores_of
    from serving.server.loaded_model import tokenizer_of
    from trainer.hf.export import HF_MODEL, HfExportConfig, export_hf
    from trainer.model.transformer import Transformer
    from trainer.scoring import load_scorer

    trained = locate(stores_of(root), checkpoint)
    with tempfile.TemporaryDirectory() as scratch:
        with writing(Store(scratch), ArtifactSpec(("hf",), None, HF_MODEL.name, HF_MODEL.version, {})) as out:
            export_hf(out, HfExportConfig(), trained, tokenizer_of(trained))
        shutil.copytree(out.artifact.folder(), folder)
    scorer = load_scorer(trained)
    tokens = np.random.default_rng(0).integers(0, scorer.vocab_size, (2, LENGTH)).astype(np.int32)
    np.save(folder / "tokens.npy", tokens)
    np.save(folder / "logits.npy", np.asarray(eqx.filter_jit(Transformer.__call__)(scorer.model, tokens)))


if __name__ == "__main__":
    main()
