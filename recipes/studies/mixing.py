"""Which mixture of six sources is best for prose and an encyclopedia that are not among them? A swarm of small models.

The targets are the held-out parts of `sotu` and `wiki`, which no trial trains on. A person would choose more prose and less
code for them. The swarm has to find that out, and its proposal meets that choice.
"""

from dataclasses import replace

from recipes.records.run import Run
from recipes.studies.small_models import SEQ_LEN, small_mix, small_model, small_run
from recipes.study import Study
from recipes.swarms import Swarm
from science.mixtures.proposal_stage import SwarmProposalConfig
from trainer.spec.llama import LlamaConfig

WIDTH, HEADS, TOKENS, BATCH, RATE, WARMUP_STEPS = 48, 2, 1_000_000, 8, 6e-3, 200
ROPE_THETA = 100.0
"""With these, seeds agree: four runs of the uniform mixture spread over .014 bits a byte of `sotu`. The warm-up matters most:
after a tenth of the steps at this rate, some orders of the data leave a model that learns slowly to the end, with any
initialization. The spread was .09 then, and .04 at 2 M tokens (docs/log.md, 2026-11-27). Wider heads, and rotations that fit
the context, help a little more."""
BLOCK = 256
SOURCES = (
    ("stdlib_code", 3_325_902),
    ("stdlib_html", 982_982),
    ("kjv", 1_590_205),
    ("math_docstrings", 1_840_224),
    ("python_topics", 193_794),
    ("package_docs", 775_328),
)
"""Tokens of the caches on 2026-11-25; the table of the swarm refuses counts that are off by more than 5 %."""
HAND_PICKED = (("kjv", 0.4), ("stdlib_code", 0.2), ("stdlib_html", 0.15), ("package_docs", 0.15), ("math_docstrings", 0.1))
TARGET_TOKENS, MAX_EPOCHS = 4_000_000, 4.0
DESIGNS = (
    (0.939, 0.011, 0.018, 0.021, 0.002, 0.009),
    (0.433, 0.011, 0.260, 0.277, 0.003, 0.016),
    (0.412, 0.218, 0.157, 0.121, 0.060, 0.032),
    (0.303, 0.020, 0.240, 0.290, 0.000, 0.147),
    (0.371, 0.055, 0.113, 0.402, 0.000, 0.059),
    (0.316, 0.085, 0.210, 0.158, 0.147, 0.084),
    (0.164, 0.203, 0.400, 0.230, 0.002, 0.001),
    (0.744, 0.002, 0.012, 0.078, 0.000, 0.164),
    (0.432, 0.090, 0.274, 0.099, 0.010, 0.095),
    (0.167, 0.022, 0.002, 0.809, 0.000, 0.000),
    (0.038, 0.912, 0.018, 0.021, 0.002, 0.009),
    (0.430, 0.061, 0.146, 0.235, 0.034, 0.094),
    (0.359, 0.184, 0.010, 0.151, 0.037, 0.259),
    (0.249, 0.002, 0.612, 0.128, 0.000, 0.009),
    (0.364, 0.120, 0.132, 0.307, 0.000, 0.077),
    (0.670, 0.013, 0.221, 0.007, 0.000, 0.089),
    (0.598, 0.104, 0.007, 0.286, 0.000, 0.005),
    (0.254, 0.057, 0.371, 0.142, 0.038, 0.138),
    (0.083, 0.188, 0.063, 0.569, 0.000, 0.097),
    (0.595, 0.001, 0.270, 0.077, 0.000, 0.057),
    (0.038, 0.011, 0.919, 0.021, 0.002, 0.009),
    (0.012, 0.004, 0.028, 0.727, 0.002, 0.227),
    (0.234, 0.139, 0.275, 0.119, 0.161, 0.072),
    (0.527, 0.081, 0.120, 0.213, 0.003, 0.056),
    (0.552, 0.112, 0.098, 0.233, 0.002, 0.003),
    (0.522, 0.011, 0.178, 0.084, 0.001, 0.204),
    (0.214, 0.102, 0.235, 0.208, 0.002, 0.239),
    (0.870, 0.011, 0.036, 0.082, 0.000, 0.001),
    (0.486, 0.167, 0.162, 0.161, 0.007, 0.017),
    (0.320, 0.113, 0.197, 0.280, 0.001, 0.089),
    (0.038, 0.011, 0.018, 0.922, 0.002, 0.009),
    (0.326, 0.007, 0.236, 0.376, 0.054, 0.001),
)
"""`science.mixtures.designs.swarm` around the sources' tokens, within the caps, seed 0; `tests/recipes/test_swarms.py`."""


def study() -> Study:
    return Study("Which mixture of six sources is best for two others?", swarms=(prose_swarm,))


def prose_swarm() -> Swarm:
    """32 designs and three repeats at two anchors, over 1 M tokens each."""
    search = SwarmProposalConfig(SOURCES, TARGET_TOKENS, MAX_EPOCHS, HAND_PICKED)
    return Swarm("prose", base(), DESIGNS, ("prose/sotu", "encyclopedia/wiki"), search)


def steady_model() -> LlamaConfig:
    """A model of the family whose seeds agree after a long warm-up."""
    return replace(small_model(WIDTH), num_heads=HEADS, num_kv_heads=HEADS, rope_theta=ROPE_THETA, qk_norm=True)


def base() -> Run:
    """The model of every trial."""
    run = small_run("base", steady_model(), TOKENS // (BATCH * SEQ_LEN), RATE, batch=BATCH, warmup_steps=WARMUP_STEPS)
    return replace(run, data=replace(small_mix(), block_size=BLOCK))
