"""An adapter of ours opened by PEFT: its logits, unmerged and merged by PEFT, against ours.

    python benchmarks/post_training/open_adapter_in_peft.py write FOLDER     # in the project's environment
    python benchmarks/post_training/open_adapter_in_peft.py compare FOLDER   # in one with peft, torch and transformers

`write` trains nothing: base and adapter are random, which shows a wrong name, axis or scale just as well.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np

EOS, ROWS, LENGTH = 0, 4, 24


def write(folder: Path) -> None:
    """A base in Hugging Face's form, an adapter in PEFT's, tokens, and our logits."""
    import equinox as eqx
    import haliax as hax
    import jax
    from safetensors.numpy import save_file

    from trainer.arrays import copied_to_host
    from trainer.hf.adapter import peft_tensors, stated_config
    from trainer.hf.convert import hf_config, to_hf
    from trainer.model.build import init_model
    from trainer.model.lora import Adapted
    from trainer.spec.llama import LlamaConfig
    from trainer.spec.lora import TARGETS, LoraConfig

    model = LlamaConfig(97, 48, 80, num_layers=3, num_heads=6, num_kv_heads=2, max_seq_len=32)
    config = LoraConfig(4, 6.0, TARGETS)
    base = init_model(model, key=jax.random.PRNGKey(0))
    adapted = Adapted.init(base, config, key=jax.random.PRNGKey(1))
    names = enumerate(adapted.adapter.stacked.up.items())
    up = {name: 0.2 * hax.random.normal(jax.random.PRNGKey(10 + at), each.axes) for at, (name, each) in names}
    adapted = eqx.tree_at(lambda each: each.adapter.stacked.up, adapted, up)
    for name in ("base", "adapter"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    save_file(to_hf(copied_to_host(base).arrays, model), folder / "base" / "model.safetensors", {"format": "pt"})
    (folder / "base" / "config.json").write_text(json.dumps(hf_config(model, (EOS,), EOS) | {"torch_dtype": "float32"}))
    tensors = peft_tensors(copied_to_host(adapted.adapter).arrays, config)
    save_file(tensors, folder / "adapter" / "adapter_model.safetensors", {"format": "pt"})
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(stated_config(config, str(folder / "base"))))
    tokens = np.random.default_rng(0).integers(1, 97, (ROWS, LENGTH)).astype(np.int32)
    np.save(folder / "tokens.npy", tokens)
    np.save(folder / "logits.npy", np.asarray(adapted(tokens)))
    np.save(folder / "base_logits.npy", np.asarray(base(tokens)))


def compare(folder: Path) -> None:
    """Print the largest differences of the logits."""
    torch, peft, transformers = (import_module(name) for name in ("torch", "peft", "transformers"))
    tokens = torch.from_numpy(np.load(folder / "tokens.npy")).long()
    ours = np.load(folder / "logits.npy")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    with torch.no_grad():
        opened = peft.PeftModel.from_pretrained(model, folder / "adapter")
        unmerged = opened(tokens).logits.numpy()
        merged = opened.merge_and_unload()(tokens).logits.numpy()
    moved = np.abs(ours - np.load(folder / "base_logits.npy")).max()
    print(f"peft {peft.__version__}, torch {torch.__version__}: the adapter moves logits by up to {moved:.3g}")
    print(f"unmerged differs by {np.abs(unmerged - ours).max():.2g}, merged by {np.abs(merged - ours).max():.2g}")


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
