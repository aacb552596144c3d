"""Runs that start from another model: the end of `tiny`, its step 100, and a published model."""

from dataclasses import replace

from recipes.gaps import Gap, at_step, published
from recipes.models import smollm2, smollm2_config
from recipes.records.run import AtStep, Run
from recipes.records.tokens import Mix, Tokens
from recipes.studies.default import default_corpus, default_evaluation, tiny
from recipes.study import Study
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig, ClipUpdateNormConfig, SkipBadStepsConfig
from trainer.spec.schedules import WarmupStableDecay


def study() -> Study:
    return Study(
        "What does a start from another model keep?",
        runs=(tiny_cooldown, tiny_qk_norm, smollm2_continued),
        gaps=(tiny_to_smollm2,),
    )


def tiny_cooldown() -> Run:
    """Continues `tiny` from its end; the rate falls to zero from its last value, as in a final phase."""
    before = tiny()
    schedule = WarmupStableDecay(peak_learning_rate=1e-3, warmup_steps=5, decay_frac=0.9, min_lr_ratio=0.0)
    spec = replace(before.spec, name="tiny_cooldown", schedule=schedule, num_steps=60, save_every_steps=60, start=WarmStart())
    return replace(before, spec=spec, start=AtStep(before, before.spec.num_steps))


def tiny_qk_norm() -> Run:
    """Phase 3 of Marin's 32B run in small: a Llama becomes a Qwen3 at step 100 of `tiny`, and continues in its data.

    As in Marin's published 32B retrospective, moments and the guards' statistics are kept and only the norms of queries and
    keys are new. The rate is warmed up again, gradients are clipped at 0.2, and z-loss and both guards are on.
    """
    before = tiny()
    llama = before.spec.model
    assert isinstance(llama, LlamaConfig)  # another family has no such field
    spec = replace(
        before.spec,
        name="tiny_qk_norm",
        model=replace(llama, qk_norm=True),
        optimizer=AdamWConfig(weight_decay=0.05, max_grad_norm=0.2),
        schedule=WarmupStableDecay(peak_learning_rate=4e-3, warmup_steps=10, decay_frac=0.4, min_lr_ratio=0.1),
        num_steps=50,
        save_every_steps=50,
        z_loss_weight=1e-4,
        clip_update_norm=ClipUpdateNormConfig(num_std=2.0),
        skip_bad_steps=SkipBadStepsConfig(),
        start=WarmStart("carried", new_parameters=("q_norm", "k_norm"), guards="rebuilt", data="continued"),
    )
    return replace(before, spec=spec, start=AtStep(before, 100))


def smollm2_continued() -> Run:
    """A published model of 135 M parameters, trained further on our corpus; few steps, as one takes 20 s on two cores."""
    tokens = Tokens("default-smollm2", default_corpus(), smollm2())
    spec = RunSpec(
        name="smollm2_continued",
        model=smollm2_config(),
        optimizer=AdamWConfig(),
        schedule=WarmupStableDecay(peak_learning_rate=1e-4, warmup_steps=4, decay_frac=0.5, min_lr_ratio=0.1),
        batch_size=4,
        seq_len=256,
        num_steps=16,
        seed=1,
        save_every_steps=16,
        start=WarmStart(),
    )
    return Run(spec, Mix("default-smollm2", tokens), default_evaluation(), start=smollm2())


def tiny_to_smollm2() -> Gap:
    """The gap between `tiny` and a published model of 70 times its size."""
    run = tiny()
    return Gap("tiny_to_smollm2", at_step(run, run.spec.num_steps), published(smollm2()), run)
