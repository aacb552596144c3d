"""Two processes with bucket checkpoints: both save when one is preempted, each reads its part."""

import json
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from gcs_server import GcsServer
from tiny_run import RUN, at_step, ended, job_in_bucket, job_of, log_of, metrics_of, started

from lineage.artifact.store import Artifact, Store
from lineage.jobs.job import Job, job_folder, write_job
from marin_assets.cli.run_plan import Resume
from trainer.array_files import Files, open_arrays
from trainer.footprint import footprint
from trainer.saving import rolling_store, saved_before, step_of
from trainer.scoring import load_scorer
from trainer.signals import LEFT
from trainer.spec.mesh import MeshShape
from trainer.spec.optimizers import EmaConfig
from trainer.tagged import TaggedText, bits_per_byte
from trainer.trackers import attempts_of
from trainer.train import train

SPEC = replace(
    RUN,
    num_steps=30,
    save_every_steps=30,
    microbatch_size=2,
    ema=EmaConfig(0.9),
    model=replace(RUN.model, intermediate_dim=2048),
)
"""A model whose arrays are much larger than what a file says of them."""
TEXT = (np.arange(0, 60, 2) % 50).astype(np.int32)
QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "MARIN_HEARTBEAT_SECONDS": "600"}
LOST = {"MARIN_HEARTBEAT_SECONDS": "30"}
"""Where hosts are killed, a process without its peer ends soon."""
READ = r"arrays: (\d+) of (\d+) bytes read"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


@dataclass(frozen=True)
class Warned:
    """The run in two processes. The second gets SIGTERM before step 7; later both resume and end.

    In between, other machines resumed the run and were killed before their first step.
    """

    root: Path
    job: Job
    codes: list[int]
    saved: list[Artifact]
    """By the first attempt."""
    from_bucket: int
    """Bytes that the last attempt read."""
    requests: Counter[str]
    """Of the machines that resumed, by the server's count."""
    resumed_bytes: int


@pytest.fixture(scope="module")
def warned(gcs: GcsServer, tmp_path_factory: pytest.TempPathFactory) -> Warned:
    root = tmp_path_factory.mktemp("bucket")
    job = job_in_bucket(root, SPEC, Store(gcs.bucket("two-hosts"), scratch_folder=str(root / "scratch")))
    codes = ended(started(root, QUICK | {"MARIN_FAULTS": "term@7/1"}, processes=2))
    saved = saved_before(job, SPEC.num_steps)
    requests, resumed_bytes = _of_a_resume(gcs, root, job, step_of(saved[0]))
    before = gcs.bytes_read
    heldout = root / "heldout.jsonl"
    heldout.write_text(json.dumps({"tags": ["counting"], "tokens": TEXT.tolist(), "bytes": 50}) + "\n")
    assert ended(started(root, QUICK | {"MARIN_EVAL": f"{heldout}@10"}, processes=2)) == [0, 0], log_of(root)
    gcs.settle()
    return Warned(root, job, codes, saved, gcs.bytes_read - before, requests, resumed_bytes)


def _of_a_resume(gcs: GcsServer, root: Path, job: Job, step: int) -> tuple[Counter[str], int]:
    """Requests and bytes of two hosts that share no disk, from their start to their first step."""
    jobs = [root / f"machine-{index}.json" for index in range(2)]
    for path in jobs:
        write_job(replace(job, store=replace(job.store, scratch_folder=str(root / path.stem))), path)
    gcs.settle()
    gcs.counts.clear()
    before = gcs.bytes_read
    assert ended(started(root, QUICK | LOST | {"MARIN_FAULTS": f"kill@{step}"}, processes=2, jobs=jobs)) == [-9, -9]
    gcs.settle()
    return Counter(gcs.counts), gcs.bytes_read - before


def test_a_warning_to_one_host_makes_all_save_and_leave(warned: Warned) -> None:
    root, codes, saved = warned.root, warned.codes, warned.saved
    assert codes == [LEFT, LEFT], log_of(root) + log_of(root, 1)
    assert [8 <= step_of(each) < 30 for each in saved] == [True], "one rolling checkpoint, soon after the warning"
    assert saved[0].store.root == rolling_store(warned.job.store).root
    assert all(f"at step {step_of(saved[0])} from" in log_of(root, index) for index in range(2))


def test_the_run_has_the_losses_of_one_process_and_leaves_nothing_else(warned: Warned, gcs: GcsServer, tmp_path: Path) -> None:
    alone = job_of(tmp_path, SPEC)
    train(alone)
    final, wanted = at_step(warned.job, 30), at_step(alone, 30)
    assert final is not None and wanted is not None
    np.testing.assert_allclose(metrics_of(final)["loss_nats"], metrics_of(wanted)["loss_nats"], rtol=2e-5)
    assert final.manifest.extra["checkpoint"]["mesh"]["processes"] == 2
    final.verify()
    rest = [name for name in gcs.names("two-hosts") if name.startswith((".work/parts", ".work/rolling"))]
    assert not rest, "parts and rolling checkpoints are gone"
    assert not list((warned.root / "scratch" / "handing_over").iterdir()), "and no host keeps what it handed over"


def test_two_hosts_score_held_out_text_as_one_process_does(warned: Warned) -> None:
    final = at_step(warned.job, 30)
    assert final is not None
    rows = [line for line in attempts_of(job_folder(warned.job) / "metrics.jsonl") if "eval/bpb" in line]
    assert rows[-1]["step"] == 30
    wanted = bits_per_byte(load_scorer(final, "ema"), [TaggedText(("counting",), TEXT, 50)])
    np.testing.assert_allclose(rows[-1]["eval/ema/bpb/counting"], wanted["counting"], rtol=1e-4)


def test_each_host_reads_its_share_of_the_checkpoint(warned: Warned) -> None:
    """And all of them together read it about once."""
    root = warned.root
    whole = sum(entry.bytes for entry in warned.saved[0].manifest.files)
    for index in range(2):
        read = re.search(READ, log_of(root, index))
        assert read is not None and int(read[1]) < 0.6 * int(read[2]) and int(read[2]) == whole
    assert warned.from_bucket < 1.4 * whole


def test_a_resume_asks_no_more_of_the_bucket_than_the_plan_says(warned: Warned) -> None:
    """The table of docs/design/scale.md counts by this formula; this job has no gate, which is most of its listings."""
    needs = footprint(SPEC, MeshShape(), 2)
    planned = Resume(hosts=2, trees=3, replicated=needs.replicated_arrays, checkpoints=1, ancestors=2)
    listings, reads = warned.requests["list"], sum(warned.requests[kind] for kind in ("read", "stat", "bucket"))
    print(f"a resume of two hosts: {dict(warned.requests)}, {warned.resumed_bytes} bytes; planned: {planned}")
    assert listings + reads == warned.requests["any"], "nothing is written"
    assert planned.class_a / 4 <= listings <= planned.class_a
    assert planned.class_b / 4 <= reads <= planned.class_b


def test_a_slice_comes_by_ranges_from_a_bucket(warned: Warned, gcs: GcsServer, tmp_path: Path) -> None:
    """Read by a host that has fetched nothing: some rows of an array cost their bytes, beside the headers."""
    final = at_step(warned.job, 30)
    assert final is not None
    bare = replace(final, store=replace(final.store, scratch_folder=str(tmp_path)))
    source = Files.of_artifact(bare)
    arrays, whole = open_arrays(bare, "model", source), open_arrays(final, "model").whole()
    name = max(whole, key=lambda each: whole[each].nbytes)
    headers = source.bytes_read
    index = (slice(None), slice(100, 164), *(slice(None) for _ in whole[name].shape[2:]))
    before = gcs.bytes_read
    np.testing.assert_array_equal(arrays.read(name, index), whole[name][index])
    assert gcs.bytes_read - before == source.bytes_read - headers
    assert headers <= 2 * (8 << 10) and not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(("damage", "refusal"), [("odd bytes", "has digest"), ("gone", "is missing")])
def test_a_part_that_is_damaged_is_refused_by_every_host(damage: str, refusal: str, warned: Warned, gcs: GcsServer) -> None:
    """Only the host that the part belongs to has read it; all go back to the checkpoint before, here to the start."""
    root, job = warned.root, warned.job
    final = at_step(job, 30)
    assert final is not None
    name = f"{final.spec.address}/{final.manifest.data_folder}/model.00001-of-00002.safetensors"
    final.store.storage.replace(name, b"odd!") if damage == "odd bytes" else final.store.storage.delete(name)
    again = Job(replace(job.store, scratch_folder=str(root / damage)), job.spec, job.inputs, "f", "")
    write_job(again, root / "job.json")
    ended(started(root, QUICK | LOST | {"MARIN_FAULTS": "kill@2"}, processes=2))
    for index in range(2):
        log = log_of(root, index)
        assert "trying the checkpoint before it" in log and "resuming" not in log
    assert "model.00001-of-00002.safetensors" in log_of(root, 1) and refusal in log_of(root, 1)
    assert "process 1 found damage" in log_of(root, 0)
