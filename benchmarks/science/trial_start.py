"""CPU seconds of short trials and of their results, many to a process: what a start and a compilation cost a sweep.

`python -m benchmarks.science.trial_start`. Trials of six steps, of a model of width 32 with two layers and of one with one, at
three rates each, trained by one process and scored by a second. The text is what the repository ships, so that steps and
scores cost little; they are counted too. What the data need is built first and not counted.
The bar: after the first trial of its shape, a trial and its result take at most 2 CPU seconds each. Exit status 1 if it is
missed. With `--machines`, two processes that share only a bucket (the tests' server) train them, at other rates, one after the
other: the second has the programs of the first (`trainer.shared_programs`). Dated results: docs/log.md.
"""

import argparse
import os
import resource
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from lineage.artifact.store import Store
from lineage.build.nodes import ancestors_first, resolve
from lineage.build.plan import build, build_all
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import Launcher, LaunchRecord, LaunchRequest
from lineage.jobs.kept_process import keeping_process
from lineage.shards.execution import Execution
from lineage.signing.keys import SIGNING_KEY, LocalKey
from lineage.signing.policy import POLICY
from lineage.upkeep.mirror import mirror
from recipes.records.data import Corpus, Scope, decontamination
from recipes.records.run import Evaluation, Run
from recipes.records.sweep import Sweep
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.smoke import smoke_spec
from recipes.suites import Suite
from recipes.sweeps import result, trial
from resources.lab import Lab
from trainer.spec.schedules import WarmupStableDecay

RATES, LAYERS, STEPS, VOCABULARY = (1e-3, 2e-3, 4e-3), (2, 1), 6, 1024
MOST_SECONDS = 2.0
TICKS = os.sysconf("SC_CLK_TCK")


class Counting:
    """A launcher that keeps the CPU seconds of each job that another one ran in a process that it keeps."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._before: dict[str, float] = {}
        self.seconds: list[float] = []

    def __call__(self, launch: LaunchRequest) -> LaunchRecord:
        record = self._launcher(launch)
        process = record.attempts[-1].place.removeprefix("process ")
        spent = cpu_seconds_of(process)
        self.seconds.append(spent - self._before.get(process, 0.0))
        self._before[process] = spent
        return record


def cpu_seconds_of(process: str) -> float:
    """Of a process that runs, its threads included (proc(5): fields 14 and 15)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def trials() -> Sweep:
    """Trials of six steps at three rates, of a model with two layers and of one with one."""
    return Sweep("start", tuple(at(layers, rate) for layers in LAYERS for rate in RATES))


def at(layers: int, rate: float) -> Run:
    scope, suites = Scope("small", ("vendored_prose",)), (Suite("small", "vendored"),)
    corpus = Corpus("small", scope, decontamination("small", suites, scope.sources))
    tokens = Tokens("small-bpe1k", corpus, TrainedTokenizer("bpe1k", vocab_size=VOCABULARY))
    base = smoke_spec(VOCABULARY)
    shape = {"hidden_dim": 32, "intermediate_dim": 64, "num_layers": layers, "num_heads": 2, "num_kv_heads": 1}
    spec = replace(
        base,
        name=f"l{layers}-lr{rate:g}",
        model=replace(base.model, max_seq_len=128, **shape),
        schedule=WarmupStableDecay(rate, warmup_steps=1, decay_frac=0.0, min_lr_ratio=1.0),
        seq_len=128,
        batch_size=8,
        num_steps=STEPS,
        save_every_steps=None,
    )
    return Run(spec, Mix("small", tokens), Evaluation(suites))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", action="store_true", help="two machines that share a bucket, in place of one")
    machines = parser.parse_args().machines
    with tempfile.TemporaryDirectory() as root:
        if machines:
            on_two_machines(Path(root))
            return
        sys.exit(measure(Lab.at(root, execution=Execution(2)).store) > MOST_SECONDS)


def measure(store: Store) -> float:
    """Print what each trial took; return the most that one took after the first of its shape, in CPU seconds."""
    sweep = trials()
    made = [[node(run) for run in sweep.trials] for node in (trial, result)]
    build_all(store, [each for each in ancestors_first(made[1]) if each.stage.job is None], execution=Execution(2))
    print("| trial | trained, CPU s | scored, CPU s |\n|---|---|---|")
    with keeping_process(run_subprocess) as kept:
        counting = Counting(kept)
        for nodes in made:
            for node in nodes:
                build(store, node, launcher=counting)
    trained, scored = counting.seconds[: len(sweep.trials)], counting.seconds[len(sweep.trials) :]
    for run, one, other in zip(sweep.trials, trained, scored, strict=True):
        print(f"| {run.name} | {one:.1f} | {other:.1f} |")
    later = [at for at in range(len(sweep.trials)) if at % len(RATES)]
    most = max(max(trained[at], scored[at]) for at in later)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"\nafter the first of its shape: at most {most:.1f} CPU s (bar {MOST_SECONDS:g}); peak {peak:.0f} MiB")
    return most


def on_two_machines(root: Path) -> None:
    """Print what each trial took on a machine that found the bucket empty, and on the next one."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "lab"))
    from gcs_server import gcs_server

    os.environ |= _signing(root)  # before anything is made: what another key has signed does not count
    runs = trials().trials
    plain = Lab.at(str(root), execution=Execution(2)).store
    data = [each for each in ancestors_first([trial(run) for run in runs]) if each.stage.job is None]
    build_all(plain, data, execution=Execution(2))
    print("| machine | trial | trained, CPU s |\n|---|---|---|")
    with gcs_server() as server:
        bucket = server.bucket("start")
        os.environ["STORAGE_EMULATOR_HOST"] = server.url
        for number, factor in enumerate((1.0, 1.5)):
            store = Store(bucket, str(root / f"scratch-{number}"))
            for node in data:
                list(mirror(resolve(plain, node), store, "benchmark"))
            with keeping_process(run_subprocess) as kept:
                counting = Counting(kept)
                for run in runs:
                    rate = replace(run.spec.schedule, peak_learning_rate=factor * run.spec.schedule.peak_learning_rate)
                    build(store, trial(replace(run, spec=replace(run.spec, schedule=rate))), launcher=counting)
            for run, seconds in zip(runs, counting.seconds, strict=True):
                print(f"| {number + 1} | {run.name} | {seconds:.1f} |")


def _signing(root: Path) -> dict[str, str]:
    """A key and a policy that names it: programs are code, so only signed ones are shared."""
    key = LocalKey.make()
    (root / "key.pem").write_bytes(key.pem)
    (root / "key.pem").chmod(0o600)
    (root / "lab.yaml").write_text(f"keys:\n  jobs: {{public: {key.public.text}, may: [make]}}\n")
    return {SIGNING_KEY: str(root / "key.pem"), POLICY: str(root / "lab.yaml")}


if __name__ == "__main__":
    main()
