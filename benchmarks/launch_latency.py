"""What a launch costs on a real API server (the tests' control plane): latency a job, and 200 queued jobs submitted.

    bash tests/lab/build_kube.sh && PYTHONPATH=. .venv/bin/python benchmarks/launch_latency.py [--jobs 200 --launches 20]

Bars (issue 7): at most 5 s of the orchestrator's own beyond the pod's start, 200 jobs submitted within 60 s. A pod is a Python
process that writes the time and ends, on a kubelet of ours: its start is not that of a container. Alternated with launches are
bare Jobs of the same manifest, created and waited for by nothing but the API; the difference is the launcher's.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "lab"))

from control_plane import ControlPlane, binaries  # noqa: E402
from kubelet import Kubelet  # noqa: E402
from launches import IMAGE, launcher_of  # noqa: E402
from pod_process import Image  # noqa: E402

from lineage.jobs.job import LaunchRequest  # noqa: E402
from recipes.hardware import hardware  # noqa: E402
from resources.cluster import JOBS, Cluster  # noqa: E402
from resources.job_kinds import JOB, Start, state_of  # noqa: E402
from resources.kubernetes_launcher import KubernetesLauncher  # noqa: E402
from resources.manifests import job_file, object_name  # noqa: E402

ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "marin-job"}}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200, help="jobs submitted while no node takes them")
    parser.add_argument("--launches", type=int, default=20, help="pairs of a launch and a bare Job")
    options = parser.parse_args(arguments)
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'lab'}", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin"}
    with tempfile.TemporaryDirectory() as scratch, ControlPlane(binaries()) as plane:
        cluster = plane.cluster("default")
        cluster.create("/api/v1/namespaces/{namespace}/serviceaccounts", ACCOUNT)
        with Kubelet(plane.cluster("default"), {IMAGE: Image(ROOT, env)}) as kubelet:
            kubelet.add_node("cpu-0")
            launcher = launcher_of(cluster, Path(scratch))
            print(f"Kubernetes {cluster.server_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
            latency(launcher, Path(scratch), options.launches)
            kubelet.cluster.merge("/api/v1/nodes/cpu-0", {"spec": {"unschedulable": True}})
            queue(launcher, Path(scratch), options.jobs)
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def launch_of(folder: Path, number: int, kind: str) -> LaunchRequest:
    """A job that notes when it began."""
    home = folder / f"{kind}-{number}"
    home.mkdir()
    steps = [{"touch": str(home / "began")}]
    (home / "job.json").write_text(json.dumps({"steps": steps}))
    return LaunchRequest("quick_job", home / "job.json", home / "log.txt", f"benchmarks/{kind}", f"{number:08x}{kind}")


def latency(launcher: KubernetesLauncher, folder: Path, pairs: int) -> None:
    """Pairs of a launch and a bare Job: seconds to the pod's first line, and from it to knowing that all is done."""
    times: dict[str, list[tuple[float, float]]] = {"launch": [], "bare": []}
    cpu = 0.0
    for number in range(pairs):
        for kind in ("launch", "bare") if number % 2 else ("bare", "launch"):
            launch = launch_of(folder, number, kind)
            started, busy = time.time(), time.process_time()
            if kind == "launch":
                launcher(launch)
                cpu += time.process_time() - busy
            else:
                bare(launcher, launch)
            began = (launch.job_path.parent / "began").stat().st_mtime
            times[kind].append((began - started, time.time() - began))
    for kind, rows in times.items():
        before, after = ([row[i] for row in rows] for i in (0, 1))
        print(f"{kind:>7}: to the pod's first line {spread(before)}, from it to the end {spread(after)}")
    extra = [sum(a) - sum(b) for a, b in zip(times["launch"], times["bare"], strict=True)]
    print(f"launcher's own: {spread(extra)} a launch, {1000 * cpu / pairs:.0f} ms of CPU here (bar 5 s; polls every 0.1 s)")


def bare(launcher: KubernetesLauncher, launch: LaunchRequest) -> None:
    """Create the same manifest through the API alone, and poll every 20 ms until it is done."""
    cluster = launcher.cluster
    cluster.create(JOBS, JOB.render(launch, hardware("cpu"), launcher.settings, 1, "[]"))
    cluster.create("/api/v1/namespaces/{namespace}/configmaps", job_file(launch, hardware("cpu"), launcher.settings, 1))
    while state_of(JOB, cluster.get(JOBS, object_name(launch)) or {}) == "active":
        time.sleep(0.02)


def queue(launcher: KubernetesLauncher, folder: Path, jobs: int) -> None:
    """Jobs that no node takes, submitted one after another, again (all adopted), and by eight threads."""
    for name, workers in (("one after another", 1), ("by eight threads", 8)):
        launches = [launch_of(folder, number, f"queued{workers}") for number in range(jobs)]
        for round_name in ("submitted", "adopted"):
            started, busy = time.perf_counter(), time.process_time()
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(lambda launch: launcher.submit(launch, Start(hardware("cpu"), JOB)), launches))
            seconds, cpu = time.perf_counter() - started, time.process_time() - busy
            print(f"{jobs} jobs {round_name} {name}: {seconds:.1f} s, {cpu:.1f} s of CPU here (bar 60 s)")
    print(f"jobs on the server: {waiting(launcher.cluster)}")


def waiting(cluster: Cluster) -> int:
    return len([job for job in cluster.find(JOBS) if state_of(JOB, job) == "active"])


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} s (from {min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main(sys.argv[1:])
