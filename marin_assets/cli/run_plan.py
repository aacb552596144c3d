"""Costs of a run on paper: time, memory of a device, checkpoints, storage operations, dollars; and its manifest.

State, activations and FLOPs come from `trainer.footprint`; this module adds hardware and prices. Every price is a list price
from memory (`recipes/hardware.py`, and below): check it before money depends on it.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lineage.jobs.job import LaunchRequest
from lineage.storage.ranges import BLOCK_BYTES
from recipes.hardware import Hardware, hardware
from recipes.planned_runs import PlannedRun
from resources.cluster_settings import ClusterSettings
from resources.manifests import job_manifest, jobset_manifest
from resources.pods import DISK, Manifest
from trainer.footprint import Footprint, footprint
from trainer.running import Running
from trainer.saving import KEEP_ROLLING, MOST_POLL_SECONDS
from trainer.spec.settings import mesh_argument

DAY_SECONDS = 86_400
GIB = 2**30
STORED_DOLLARS_PER_GB_MONTH = 0.020
CLASS_A_DOLLARS = 0.005 / 1000
"""Dollars for an operation of class A: an upload, a copy, a page of a listing; standard storage of one region."""
CLASS_B_DOLLARS = 0.0004 / 1000
"""Dollars for an operation of class B: a read."""
BUCKET_BYTES_PER_SECOND = 6.25e9
"""Bytes a second of one host to and from a bucket in its region: 50 Gbit/s, assumed."""
SENSOR_READS_A_DAY = 2 * 60 * 24 * 20
"""Reads of the sensor a day: every 30 s it asks for the manifests of the declared checkpoint and its ancestors."""
TOKEN_BYTES = 4
TOKENS_PER_DOCUMENT = 1000
"""Mean length of web documents, from memory. Every host keeps 24 bytes for each document of its token caches on disk."""
ANCESTORS = 20
"""Ancestors of a checkpoint, about. A resume reads each manifest, and the gate looks for verdicts beside it."""
TREES = 2
"""Files of arrays that a host writes: model and optimizer. A weight average would be a third."""


@dataclass(frozen=True)
class Resume:
    """Storage operations of hosts that resume from a checkpoint that they wrote themselves.

    Each host fetches its own parts whole, to compare them with their digests. Of the other parts it fetches the headers and the
    arrays that all hosts have. `tests/trainer/test_two_hosts_in_a_bucket.py` compares this with counted requests.
    """

    hosts: int
    trees: int
    replicated: int
    checkpoints: int
    """Upper bound of checkpoints, kept and rolling."""
    ancestors: int

    @property
    def class_a(self) -> int:
        """Count listings: checkpoints in two places, and two of the gate for each ancestor."""
        return self.hosts * (2 + 2 * self.ancestors)

    @property
    def class_b(self) -> int:
        """Count reads: the bucket's region; each ancestor's manifest for the job, the region's guard and the gate; checkpoints'
        manifests; arrays and headers (up to two requests each); four small files.
        """
        arrays = self.trees * (1 + 2 * (self.hosts - 1)) + self.replicated
        return self.hosts * (1 + 3 * self.ancestors + self.checkpoints + arrays + 4)

    @property
    def dollars(self) -> float:
        return self.class_a * CLASS_A_DOLLARS + self.class_b * CLASS_B_DOLLARS


@dataclass(frozen=True)
class RunPlan:
    """A paper run on some hardware."""

    run: PlannedRun
    shape: Hardware
    needs: Footprint

    @property
    def step_seconds(self) -> float:
        return self.needs.flops_per_step / (self.shape.peak_flops * self.run.utilisation)

    @property
    def step_tokens(self) -> int:
        return self.run.spec.step_tokens(0)

    @property
    def days(self) -> float:
        return self.step_seconds * self.run.spec.num_steps / DAY_SECONDS

    @property
    def device_memory(self) -> int:
        assert self.shape.chip is not None  # `plan` refuses CPUs
        return self.shape.chip.hbm_bytes

    @property
    def saves_a_day(self) -> float:
        """Count rolling checkpoints; never more than one a step."""
        return DAY_SECONDS / max(Running().rolling_seconds, self.step_seconds)

    @property
    def host_save_bytes(self) -> float:
        """Return bytes of a save by one host, which writes the arrays that it owns."""
        return self.needs.state_bytes / self.shape.pods

    @property
    def host_disk_bytes(self) -> float:
        """Return bytes on a host's disk at once: files fetched to resume, a save in progress, ends and ids of documents."""
        documents = self.step_tokens * self.run.spec.num_steps / TOKENS_PER_DOCUMENT
        return 2 * self.host_save_bytes + 24 * documents

    @property
    def host_disk_gib(self) -> int:
        """Return the GiB of disk that its pod may use before it is evicted."""
        return int(self.shape.resources[DISK].removesuffix("Gi"))

    @property
    def save_seconds(self) -> float:
        return self.host_save_bytes / BUCKET_BYTES_PER_SECOND

    @property
    def class_a_a_day(self) -> float:
        """Count operations of class A a day. A save takes two files of arrays and a note for each host, a copy of each file to
        its place, three small files, the manifest, and five listings (older checkpoints, data without a manifest).
        """
        return self.saves_a_day * (5 * self.shape.pods + 4 + 5)

    @property
    def class_b_a_day(self) -> float:
        """Count operations of class B a day: a range of a token cache for every sequence, hosts that wait for each other's part
        of a save, and the sensor.
        """
        sequences = self.run.spec.batches.size(0) * DAY_SECONDS / self.step_seconds
        waiting = self.saves_a_day * 2 * self.shape.pods * (8 + self.save_seconds / MOST_POLL_SECONDS)
        return sequences * self.blocks_a_sequence + waiting + SENSOR_READS_A_DAY

    @property
    def blocks_a_sequence(self) -> int:
        return 1 + (self.run.spec.seq_len * TOKEN_BYTES - 1) // BLOCK_BYTES

    @property
    def stored_bytes(self) -> int:
        """Return bytes of the checkpoints that exist at once: the rolling ones, and one that is being written."""
        return (KEEP_ROLLING + 1) * self.needs.state_bytes

    @property
    def resume(self) -> "Resume":
        """Return the cost to start a gang again, after a preemption or the death of a host."""
        count = len(self.run.spec.saved_steps()) + KEEP_ROLLING
        return Resume(self.shape.pods, TREES, self.needs.replicated_arrays, count, ANCESTORS)

    @property
    def storage_dollars_a_day(self) -> float:
        operations = self.class_a_a_day * CLASS_A_DOLLARS + self.class_b_a_day * CLASS_B_DOLLARS
        return operations + self.stored_bytes / 1e9 * STORED_DOLLARS_PER_GB_MONTH / 30

    @property
    def dollars_a_day(self) -> float:
        return self.shape.dollars_per_hour * 24


def plan(run: PlannedRun, on: str | None = None) -> RunPlan:
    """Plan a paper run on its hardware, or on another. Raises: ValueError for hardware without accelerators, or if the mesh
    does not divide evenly on it.
    """
    shape = hardware(on or run.hardware)
    if shape.chip is None:
        raise ValueError(f"hardware {shape.name!r} has no accelerators; {run.name} is planned on {run.hardware}")
    return RunPlan(run, shape, footprint(run.spec, run.mesh, shape.chips, shape.kind))


def manifest(run_plan: RunPlan) -> Manifest:
    """Return the Job or JobSet of its training, as a launcher would create it."""
    settings = ClusterSettings(
        image="REGISTRY/marin-lab@sha256:DIGEST",
        namespace="marin",
        queues={run_plan.shape.name: run_plan.shape.name},
        priorities={"production": "marin-production"},
        priority="production",
        env={"MARIN_REGION": "REGION", "MARIN_ROOT": "gs://BUCKET"},
    )
    name, step = f"runs/{run_plan.run.name}/checkpoint", run_plan.run.spec.num_steps
    extra = (mesh_argument(mesh_text(run_plan)),)
    launch = LaunchRequest("trainer", Path("job.json"), Path("log.txt"), f"{name}[step-{step:08d}]", "0" * 32, arguments=extra)
    render = job_manifest if run_plan.shape.pods == 1 else jobset_manifest
    return render(launch, run_plan.shape, settings, 1, "[]")


def mesh_text(run_plan: RunPlan) -> str:
    """Return the mesh in the form of `MARIN_MESH`."""
    slices, data, expert, tensor = run_plan.run.mesh.sizes(run_plan.shape.chips)
    sizes = {"slice": slices, "data": data, "expert": expert, "tensor": tensor}
    return ",".join(f"{name}={size}" for name, size in sizes.items() if size > 1)


def rows(run_plan: RunPlan) -> list[tuple[str, str]]:
    """Return rows for people: (name, value)."""
    run, needs, shape = run_plan.run, run_plan.needs, run_plan.shape
    memory = run_plan.device_memory
    return [
        ("parameters, of which a token meets", f"{needs.parameters / 1e9:.1f} B, {needs.active_parameters / 1e9:.2f} B"),
        ("tokens", f"{run_plan.step_tokens * run.spec.num_steps / 1e12:.3f} T in {run.spec.num_steps:,} steps"),
        ("FLOPs of the run", f"{needs.flops_per_step * run.spec.num_steps:.2e}"),
        ("hardware", f"{shape.name}: {shape.chips} chips on {shape.pods} hosts, mesh {mesh_text(run_plan)}"),
        ("assumed utilisation", f"{run.utilisation:.0%} of {shape.peak_flops / 1e15:.1f} PFLOP/s"),
        ("a step, the run", f"{run_plan.step_seconds:.1f} s, {run_plan.days:.1f} days"),
        ("tokens a second", f"{run_plan.step_tokens / run_plan.step_seconds:,.0f}"),
        ("device: parameters and optimizer", f"{needs.device_state_bytes / GIB:.1f} GiB"),
        ("device: gradients", f"{needs.device_gradient_bytes / GIB:.1f} GiB"),
        ("device: activations kept", f"{needs.device_activation_bytes / GIB:.1f} GiB (remat {run.spec.compute.remat})"),
        ("device: gathered weights, one layer's work", f"{needs.device_working_bytes / GIB:.1f} GiB (estimate)"),
        (
            "device: together, of",
            f"{needs.device_bytes / GIB:.1f} of {memory / GIB:.1f} GiB ({needs.device_bytes / memory:.0%})",
        ),
        (
            "checkpoint",
            f"{needs.state_bytes / 1e12:.3f} TB, {run_plan.host_save_bytes / 1e9:.1f} GB a host, {run_plan.save_seconds:.0f} s",
        ),
        (
            "host: disk for a save, a resume, documents, of",
            f"{run_plan.host_disk_bytes / GIB:.0f} of {run_plan.host_disk_gib} GiB",
        ),
        ("saves a day", f"{run_plan.saves_a_day:.0f}, {run_plan.saves_a_day * needs.state_bytes / 1e12:.0f} TB"),
        ("storage operations a day", f"{run_plan.class_a_a_day:,.0f} of class A, {run_plan.class_b_a_day:,.0f} of class B"),
        (
            "a resume: storage operations",
            f"{run_plan.resume.class_a:,} of class A, {run_plan.resume.class_b:,} of class B, "
            f"{run_plan.resume.dollars:.3f} dollars",
        ),
        (
            "a resume: bytes",
            f"{needs.state_bytes / 1e12:.3f} TB, {run_plan.host_save_bytes / 1e9:.1f} GB a host, {run_plan.save_seconds:.0f} s",
        ),
        ("storage, dollars a day", f"{run_plan.storage_dollars_a_day:,.2f} ({run_plan.stored_bytes / 1e12:.2f} TB held)"),
        (
            "accelerators, dollars a day",
            f"{run_plan.dollars_a_day:,.0f}; the run {run_plan.dollars_a_day * run_plan.days:,.0f}",
        ),
    ]


def markdown(plans: list[RunPlan]) -> str:
    """Return the table of docs/design/scale.md."""
    columns = [dict(rows(run_plan)) for run_plan in plans]
    lines = [f"| | {' | '.join(run_plan.run.name for run_plan in plans)} |", "|---|" + "---|" * len(plans)]
    lines += [f"| {what} | {' | '.join(column[what] for column in columns)} |" for what in columns[0]]
    return "\n".join(lines)


def with_remat(run: PlannedRun, remat: Literal["none", "named", "full"]) -> PlannedRun:
    """Return the same run with another choice of what the backward pass computes again."""
    return replace(run, spec=replace(run.spec, compute=replace(run.spec.compute, remat=remat)))
