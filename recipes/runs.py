"""The training half of a line: run specs as functions, and the nodes of checkpoints, evaluations and audits.

Adding a run is adding a spec here and a line in `recipes/lab.py` (docs/recipes/add_a_run.md).
"""

from dataclasses import replace

from evals.audit.build import AUDIT, AuditConfig
from evals.items.stage import (
    CONTAMINATION_SCORES,
    EVAL_RESULT,
    EXPORT_CANARY,
    ContaminationScoresConfig,
    EvalConfig,
    ExportCanaryConfig,
    TaskSpec,
)
from evals.tasks.policy import POLICY
from lineage.build.plan import Node
from recipes.data import contamination, corpora, mixture, shots, suites, tokenizer, trajectories
from recipes.lines import Line
from recipes.models import PublishedModel, imported, model_tokenizer, smollm2_config
from recipes.policies import EVAL_SEED, policy_config
from recipes.suites import suite_config
from trainer.hf.export import HF_MODEL, HfExportConfig
from trainer.spec.config import RunSpec, WarmStart
from trainer.spec.llama import LlamaConfig
from trainer.spec.optimizers import AdamWConfig, ClipUpdateNormConfig, EmaConfig, SkipBadStepsConfig
from trainer.spec.schedules import WarmupStableDecay
from trainer.spec.settings import mesh_argument
from trainer.spec.stage import CHECKPOINT, CheckpointConfig, step_partition

CONTROLS_PER_TASK = 50


def smoke() -> RunSpec:
    """The daily ferry's model, 1.9 M parameters over 1 M tokens: about four minutes on two cores (`docs/log.md`)."""
    return RunSpec(
        name="smoke",
        model=LlamaConfig(
            vocab_size=8192,
            hidden_dim=128,
            intermediate_dim=352,
            num_layers=4,
            num_heads=4,
            num_kv_heads=2,
            max_seq_len=256,
        ),
        optimizer=AdamWConfig(),
        schedule=WarmupStableDecay(peak_learning_rate=4e-3, warmup_steps=40, decay_frac=0.4, min_lr_ratio=0.1),
        batch_size=8,
        seq_len=256,
        num_steps=480,
        seed=1,
        save_every_steps=160,
    )


def tiny() -> RunSpec:
    """A declared run that shows checkpoints as step partitions: about a minute on two cores."""
    return replace(smoke(), name="tiny", num_steps=150, save_every_steps=50)


def tiny_packed() -> RunSpec:
    """`tiny` over whole documents: each sees itself alone, and none that fits is cut."""
    return replace(tiny(), name="tiny_packed", cross_document_attention=False)


def tiny_averaged() -> RunSpec:
    """`tiny` at a rate that does not fall, with an average over some 33 steps of its weights: what an average is for."""
    schedule = WarmupStableDecay(peak_learning_rate=4e-3, warmup_steps=40, decay_frac=0.0, min_lr_ratio=1.0)
    return replace(tiny(), name="tiny_averaged", schedule=schedule, ema=EmaConfig(0.97))


def tiny_cooldown() -> RunSpec:
    """Goes on from the end of `tiny`: the rate falls from where that one's stood to nought, as a phase 3 does."""
    schedule = WarmupStableDecay(peak_learning_rate=1e-3, warmup_steps=5, decay_frac=0.9, min_lr_ratio=0.0)
    return replace(tiny(), name="tiny_cooldown", schedule=schedule, num_steps=60, save_every_steps=60, start=WarmStart())


def tiny_qk_norm() -> RunSpec:
    """Phase 3 of Marin's 32B run in small: a Llama becomes a Qwen3 at step 100 of `tiny`, and goes on in its data.

    As there (`marin_32b_retrospective.md`): moments and statistics of the guards come along, only the norms of queries and keys
    are new, the rate is warmed up again, gradients are clipped at .2, and z-loss and both guards are on.
    """
    base, llama = tiny(), tiny().model
    assert isinstance(llama, LlamaConfig)  # another family has no such field
    return replace(
        base,
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


def smollm2_continued() -> RunSpec:
    """A published model of 135 M parameters trained on over our corpus: a few steps, as two cores take 20 s for one."""
    return RunSpec(
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


def canary() -> RunSpec:
    """Fixed data, fixed spec, a few hundred steps: what changes is the machine and the code, never the task."""
    base = smoke()
    model = replace(
        base.model, vocab_size=4096, hidden_dim=128, intermediate_dim=352, num_layers=2, num_heads=4, num_kv_heads=2
    )
    return replace(base, name="cpu", model=model, num_steps=300, save_every_steps=300)


def chat() -> RunSpec:
    """A model of .2 M parameters on conversations, which learns what assistants say: docs/recipes/train_on_chat.md."""
    base = smoke()
    model = replace(
        base.model,
        vocab_size=1024,
        hidden_dim=64,
        intermediate_dim=176,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        max_seq_len=128,
    )
    return replace(base, name="chat", model=model, seq_len=128, num_steps=200, save_every_steps=100)


def checkpoint(line: Line, step: int) -> Node:
    """Arrays, optimizer state and metrics at a step."""
    place = line.run_place("checkpoint", partition=step_partition(step))
    inputs = {"mixture": mixture(line)}
    if (first := start(line)) is not None:
        inputs["start"] = first
    config = CheckpointConfig(run=line.run, step=step)
    meshes = {name: (mesh_argument(mesh),) for name, mesh in line.meshes.items()}
    return Node(*place, CHECKPOINT, config, inputs, line.hardware, line.settings.arguments(), meshes)


def start(line: Line) -> Node | None:
    """The checkpoint that a line's run starts from, if it does not begin with fresh parameters."""
    if line.start_model is not None:
        return imported(line.start_model)
    return None if line.after is None else checkpoint(*line.after)


def hf_model(line: Line, step: int) -> Node:
    """The checkpoint at a step as a folder that transformers opens."""
    place = line.run_place("hf_model", partition=step_partition(step))
    return Node(*place, HF_MODEL, HfExportConfig(), {"checkpoint": checkpoint(line, step), "tokenizer": tokenizer(line)})


def export_canary(line: Line, step: int) -> Node:
    """Whether that folder opens, stops by itself, and has the special tokens of training."""
    place = line.run_place("hf_canary", partition=step_partition(step))
    return Node(*place, EXPORT_CANARY, ExportCanaryConfig(), {"hf_model": hf_model(line, step), "tokenizer": tokenizer(line)})


def published_hf_model(model: PublishedModel) -> Node:
    """A published model as such a folder again: its weights as they are scored and served here."""
    inputs = {"checkpoint": imported(model), "tokenizer": model_tokenizer(model)}
    return Node(("models", model.name, "hf_model"), None, HF_MODEL, HfExportConfig(), inputs)


def published_export_canary(model: PublishedModel) -> Node:
    """The canary of that folder."""
    inputs = {"hf_model": published_hf_model(model), "tokenizer": model_tokenizer(model)}
    return Node(("models", model.name, "hf_canary"), None, EXPORT_CANARY, ExportCanaryConfig(max_new_tokens=256), inputs)


def policy(line: Line) -> Node:
    """The dated evaluation policy of a line's checkpoints: `recipes/policies.py` says what is in it."""
    inputs = {"suites": suites(line), "shots": shots(line)}
    config = policy_config(line)
    return Node(*line.place("eval_policy", config.name), POLICY, config, inputs)


def eval_tasks(line: Line) -> tuple[TaskSpec, ...]:
    """Every task of the line's policy."""
    return policy_config(line).tasks


def eval_result(line: Line, step: int, tasks: tuple[TaskSpec, ...], partition: str) -> Node:
    """Scores with intervals and per-item records of some tasks of the policy at a step."""
    inputs = {
        "checkpoint": checkpoint(line, step),
        "tokenizer": tokenizer(line),
        "suites": suites(line),
        "shots": shots(line),
        "corpora": corpora(line),
        "trajectories": trajectories(line),
        "policy": policy(line),
    }
    config = EvalConfig(tasks=tasks, seed=policy_config(line).seed)
    return Node(*line.run_place("eval_result", partition=partition), EVAL_RESULT, config, inputs, line.eval_hardware)


def model_scores(model: PublishedModel, line: Line, task: TaskSpec) -> Node:
    """One task of a line's suites on a published model, by the policy that our own checkpoints are evaluated by."""
    inputs = {
        "checkpoint": imported(model),
        "tokenizer": model_tokenizer(model),
        "suites": suites(line),
        "shots": shots(line),
        "corpora": (),
        "policy": policy(line),
    }
    config = EvalConfig(tasks=(task,), seed=policy_config(line).seed)
    return Node(("models", model.name, "eval_result"), task.name, EVAL_RESULT, config, inputs, line.eval_hardware)


def contamination_scores(line: Line, step: int) -> Node:
    """Every item that the corpora hold and clean ones beside it, scored at a step and at the start of a warm run."""
    bound = {task.name for name, kind in line.every_suite for task in suite_config(name, kind).tasks}
    tasks = tuple(task for task in eval_tasks(line) if task.name in bound)
    inputs = {
        "checkpoint": checkpoint(line, step),
        "baseline": () if (first := start(line)) is None else (first,),
        "tokenizer": tokenizer(line),
        "suites": suites(line),
        "contamination": _marks(line),
    }
    place = line.run_place("contamination_scores", partition=step_partition(step))
    config = ContaminationScoresConfig(tasks=tasks, controls_per_task=CONTROLS_PER_TASK, seed=EVAL_SEED)
    return Node(*place, CONTAMINATION_SCORES, config, inputs, line.eval_hardware)


def audit(line: Line, step: int) -> Node:
    """Which benchmark items the corpora held, before and after, which steps up to this one saw them, and what it changed."""
    every_corpus = {node.name: node for each in line.history for node in corpora(each)}
    inputs = {
        "checkpoint": checkpoint(line, step),
        "suites": suites(line),
        "contamination": _marks(line),
        "corpora": tuple(every_corpus.values()),
        "scores": (contamination_scores(line, step),),
    }
    place = line.run_place("contamination_audit", partition=step_partition(step))
    return Node(*place, AUDIT, AuditConfig(), inputs)


def _marks(line: Line) -> tuple[Node, ...]:
    """Marks of every source of every run that led here, each once."""
    of_every_run = [(each, source) for each in line.history for source in each.sources]
    return tuple({node.name: node for node in (contamination(each, source) for each, source in of_every_run)}.values())
