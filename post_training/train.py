"""The loop: rollouts of an iteration as an artifact, updates from it, checkpoints between iterations, exact resume.

A thread commits the rollouts while the updates read them, and an iteration ends when they are on record. A killed run continues
from its last checkpoint. Rollouts that exist are read again. Their policy digest shows that the same policy made them.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import jax
import polars as pl

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact
from lineage.config import from_jsonable, to_jsonable
from lineage.jobs.job import Job
from lineage.shards.measure import measuring
from post_training.asking import EncodedPrompts, Words
from post_training.environments.verify import verifier_of
from post_training.remote_sampling import RemoteRoller, check_broker, remote_roller
from post_training.rollouts import drawn_of, policy_digest, rollouts_config, write_rollouts
from post_training.rows import together
from post_training.sampling import Roller
from post_training.spec import KLConfig
from post_training.stage import ROLLOUTS, ROLLOUTS_FILE, RewardCheckpointConfig, RolloutsConfig, iteration_partition
from post_training.update import batches, objective
from trainer.checkpoint import METRICS_SCHEMA, Tables, TrainState, read_model, read_model_config
from trainer.initial_state import start_input, starting_state
from trainer.model.build import model_shapes
from trainer.model.parts import joined, parted
from trainer.model.protocol import LanguageModel
from trainer.running import Running
from trainer.saving import Saver
from trainer.signals import PreemptedError, Stop
from trainer.spec.mesh import Layout
from trainer.spec.stage import CheckpointConfig
from trainer.step import StepFunction, StepState, compiled_step, resolved_compute
from trainer.step_results import row_of

log = logging.getLogger("post_training")


def train_on_rewards(
    job: Job, running: Running | None = None, stop: Stop | None = None, alive: Callable[[str, int], None] | None = None
) -> Artifact:
    """Run a job to its last checkpoint. `alive(phase, iteration)` is called at rollout, reward, update and save.

    Raises: ValueError for inputs that do not fit; PreemptedError after `stop` was asked for and the state was saved.
    """
    running, stop = running or Running(), stop or Stop()
    config = from_jsonable(RewardCheckpointConfig, job.spec.config)
    words, environment = Words.of(_input(job, "tokenizer")), _input(job, "environment")
    start = start_input(job, config.run)
    check_vocabulary(config, words, start)
    check_broker(config, running.rollouts)
    encoded = EncodedPrompts.of(environment, "train", words, config.longest_prompt)
    layout = Layout.of(running.mesh)
    with measuring() as cost:
        state, tables = starting_state(job, CheckpointConfig(config.run, config.step), start, layout)
        compute = together(resolved_compute(config.run, state.model), config.run)
        how = {"mesh": layout.to_record(), "compute": compute.record()}
        saver = Saver(job, config.run, layout, running, start, cost, how)
        reference = reference_of(config.kl, start, job)
        report = alive or (lambda phase, iteration: None)
        local = Roller(config, encoded, words, verifier_of(environment), reference, compute)
        run = rollouts_spec(job, config, 0).version
        roller = remote_roller(job, run, local, running.rollouts) if config.max_staleness else local
        step_fn = compiled_step(config.run, state.model, layout, compute, objective(config, compute, reference))
        try:
            _Loop(job, config, roller, step_fn, saver, stop, report, how, tables.metrics).run(state)
        finally:
            saver.close()
            roller.close()
    final = job.store.find(job.spec)
    if final is None:
        raise RuntimeError(f"{job.spec.name} was not committed")
    saver.forget_rolling()
    return final


def check_vocabulary(config: RewardCheckpointConfig, words: Words, start: Artifact | None) -> None:
    """Check the tokenizer. Raises: ValueError if it is not that of the start, or does not fit the model."""
    size = words.tokenizer.get_vocab_size()
    if size > config.run.model.vocab_size:
        raise ValueError(f"run {config.run.name}: model.vocab_size is {config.run.model.vocab_size}, the tokenizer has {size}")
    if start is not None and any(ref.name == "tokenizer" for ref in start.spec.inputs):
        there = start.input("tokenizer").data_version
        if there != words.data_version:
            raise ValueError(
                f"run {config.run.name}: its tokenizer is {words.data_version}, that of {start.name} is {there}: the same "
                "ids are other words; give the run the tokenizer of its start"
            )


def reference_of(kl: KLConfig | None, start: Artifact | None, job: Job) -> LanguageModel | None:
    """Open the model that the KL term compares with. Raises: ValueError if the job lacks it."""
    if kl is None:
        return None
    artifact = start if kl.reference == "start" else job.inputs.get("teacher")
    if not isinstance(artifact, Artifact):
        raise ValueError(f"{job.spec.name}: kl.reference is {kl.reference!r}, and the job has no such input; add it")
    return read_model(artifact, model_shapes(read_model_config(artifact)))


def rollouts_spec(job: Job, config: RewardCheckpointConfig, iteration: int) -> ArtifactSpec:
    """Return the identity of the rollouts of an iteration of this run."""
    identity = RolloutsConfig(**rollouts_config(config), iteration=iteration)
    key = (*job.spec.key[:-1], "rollouts")
    of_run = job.spec.partition is not None and job.spec.partition.startswith("step-")
    partition = iteration_partition(iteration) if of_run else f"{job.spec.partition}.{iteration_partition(iteration)}"
    return ArtifactSpec(key, partition, ROLLOUTS.name, ROLLOUTS.version, to_jsonable(identity), job.spec.inputs)


def _input(job: Job, name: str) -> Artifact:
    artifact = job.inputs.get(name)
    if not isinstance(artifact, Artifact):
        raise ValueError(f"{job.spec.name}: the job has no input {name!r}; it has {', '.join(job.inputs)}")
    return artifact


@dataclass
class _Loop:
    """The iterations of one attempt."""

    job: Job
    config: RewardCheckpointConfig
    roller: Roller | RemoteRoller
    step_fn: StepFunction
    saver: Saver
    stop: Stop
    alive: Callable[[str, int], None]
    how: dict
    metrics: pl.DataFrame
    digests: dict[str, str] = field(default_factory=dict)
    """Data version of every rollout shard that the state learned from, by partition."""

    def run(self, state: TrainState) -> None:
        """Run from a state to the last step. Raises: PreemptedError."""
        config, updates = self.config, self.config.updates
        dynamic, router, static = parted(state.model)
        fixed = router if jax.tree.leaves(router) else None  # the base of an adapter
        current = StepState(dynamic, state.optimizer, state.skip, state.ema, fixed)
        kept = {*config.run.saved_steps(config.step)}
        self.digests = self._earlier(state.step // updates)
        with ThreadPoolExecutor(1, thread_name_prefix="rollouts") as thread:
            for iteration in range(state.step // updates, config.step // updates):
                policy = joined(current.parameters, current.router, static)
                table, committed = self._rollouts(policy, iteration, thread)
                self.alive("update", iteration)
                current = self._updated(current, iteration, table)
                self._learned_from(committed())  # before a checkpoint names them
                done = (iteration + 1) * updates
                leaves = self.stop.requested.is_set() and done != config.step
                if done in kept or leaves or self.saver.rolling_is_due():
                    self.alive("save", iteration)
                    model = joined(current.parameters, current.router, static)
                    self._save(TrainState(model, current.optimizer, done, current.skip), rolling=done not in kept)
                if leaves:
                    self.saver.wait()
                    raise PreemptedError(
                        f"{config.run.name}: asked to leave; checkpoint saved at step {done}, resume from there"
                    )

    def _earlier(self, iterations: int) -> dict[str, str]:
        """Return the digests of the shards before a resume. Raises: ValueError if one is missing."""
        versions = {}
        for iteration in range(iterations):
            spec = rollouts_spec(self.job, self.config, iteration)
            there = self.job.store.find(spec)
            if there is None:
                raise ValueError(f"{spec.name} is missing, and the state to resume learned from it; restore it or start again")
            versions[spec.partition or ""] = there.data_version
        return versions

    def _rollouts(
        self, policy: LanguageModel, iteration: int, thread: ThreadPoolExecutor
    ) -> tuple[pl.DataFrame, Callable[[], Artifact]]:
        """Return the rollouts of an iteration, existing ones or new ones, and a function that returns their artifact. New ones
        are committed in the thread while the update reads them; the function waits for that.

        Raises: ValueError if another policy made existing ones.
        """
        spec = rollouts_spec(self.job, self.config, iteration)
        artifact = self.job.store.find(spec)
        trained = policy_digest(policy), iteration * self.config.updates
        if artifact is None:
            table = self.roller.rollouts(policy, trained[1], iteration, self.alive)
            return table, thread.submit(self._committed, spec, table, trained, dict(self.roller.dropped)).result
        there = artifact.manifest.extra["rollouts"]["policy_digest"]
        if there != trained[0]:
            raise ValueError(
                f"{artifact.uri} was made for the policy {there}, this run has {trained[0]} at iteration {iteration}: "
                "the updates before it did not give the same bits; run on the machine that began, or delete the rollouts"
            )
        return pl.read_parquet(artifact.file(ROLLOUTS_FILE)), lambda: artifact

    def _committed(
        self, spec: ArtifactSpec, table: pl.DataFrame, trained: tuple[str, int], dropped: Mapping[str, int]
    ) -> Artifact:
        """Write the rollouts of an iteration. `trained`: digest and step of the policy that is trained."""
        with self.job.writing(spec, self.saver.cost) as out:
            write_rollouts(out, self.config, table, trained, dropped)
        return out.artifact

    def _learned_from(self, rollouts: Artifact) -> None:
        """Remember rollouts on record, for the checkpoints."""
        self.digests[rollouts.spec.partition or ""] = rollouts.data_version
        facts = rollouts.manifest.extra["iteration"]
        shown = ", ".join(f"{name} {value:.4g}" for name, value in facts.items() if value is not None)
        log.info("%s iteration %d: %s", self.config.run.name, rollouts.spec.config["iteration"], shown)

    def _updated(self, state: StepState, iteration: int, table: pl.DataFrame) -> StepState:
        run = self.config.run
        drawn = drawn_of(self.config, table, self.roller.words.stop)
        started = []
        for number, batch in enumerate(batches(self.config, iteration, table, drawn)):
            step = iteration * self.config.updates + number
            state, metrics = self.step_fn(state, batch, step)
            started.append((step, metrics))
        rows = [row_of(run, step, metrics) for step, metrics in started]  # waits: after the last update was started
        read = pl.DataFrame(rows, schema=METRICS_SCHEMA, orient="row")
        self.metrics = pl.concat([self.metrics, read], how="diagonal")
        return state

    def _save(self, state: TrainState, *, rolling: bool) -> None:
        self.saver.wait()  # its record below must not change under a save that runs
        self.saver.how = {**self.how, "rollouts": dict(self.digests)}
        self.saver.save(state, Tables(self.metrics), {}, rolling=rolling)
