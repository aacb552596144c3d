"""The small ferry: vendored text and items, a model of two layers. No Dagster here: `sail.py` imports this file too."""

from dataclasses import replace

from recipes.ferry import Ferry
from recipes.lab import canary_line
from recipes.lines import Line
from recipes.runs import smoke

DAY = "2026-11-20"


def small_line(name: str) -> Line:
    """Two steps' worth of a model over the text that the repository ships."""
    spec = smoke()
    run = replace(
        spec,
        name=name,
        model=replace(
            spec.model, vocab_size=1024, hidden_dim=32, intermediate_dim=64, num_layers=2, num_heads=2, num_kv_heads=1,
            max_seq_len=128,
        ),
        schedule=replace(spec.schedule, warmup_steps=4),
        seq_len=128,
        batch_size=8,
        num_steps=40,
        save_every_steps=20,
    )  # fmt: skip
    return replace(
        canary_line("cpu", None),
        scope="small",
        policy="small",
        suite="small",
        corpus="small",
        tokenizer="bpe1k",
        vocab_size=1024,
        cache="small-bpe1k",
        mixture="small",
        run=run,
        run_key=(),
    )


def small_ferry() -> Ferry:
    line = replace(small_line("smoke"), prefix=("ferry",))
    return Ferry(online=line, offline=line)
