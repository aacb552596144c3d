"""Log endings by failure class, each with its origin: test data of the classifier."""

AGENT_GUIDELINES = {
    "slice health": (
        "Exception: v5p-16 slices actor pool wanted to scale to 1 actors, but scaled to 0 actors instead",
        "... ActorDiedError: The actor died unexpectedly before finishing this task.",
    ),
    "node loss": (
        "... The actor died because its node has died. Node Id: ...",
        "... the actor's node was terminated unexpectedly: health check failed due to missing too many heartbeats",
        "ray.exceptions.OwnerDiedError: Failed to retrieve object ...",
        "The object's owner has exited. ... Check cluster logs (/tmp/ray/session_latest/logs/*...* at IP address ...) ...",
    ),
    "preemption": ("Retrying after preemption in 10s",),
    "worker environment": (
        "ray._private.runtime_env.utils.SubprocessCalledProcessError: Run cmd failed",
        "Command '[.../virtualenv/bin/python', '-m', 'pip', 'install', '-r', '...requirements.txt', ...]' returned non-zero "
        "exit status 1.",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88",
    ),
    "disk pressure": (
        "file_system_monitor.cc:116: /tmp/ray/session_... is over 95% full, available space: <~few GB>; capacity: <~100 GB>.",
        "Object creation will fail if spilling is required.",
    ),
}
"""Logs quoted from Marin's agent guidelines, all transient (docs/references.md#marin-failure-logs). The numbers in numpy's
message are ours."""

TRANSIENT = {
    "preemption": (
        "02:07:15 trainer: tiny: asked to leave; checkpoint saved at step 15, go on from there",
        "02:07:15 trainer: process 1 of 2, meeting at a-host-0-0.a:8476: asked to leave before all had come",
    ),
    "peers never came": (
        "02:07:15 trainer: process 0 of 2, meeting at a-host-0-0.a:8476: peers never came within 900 s (MARIN_GATHER_SECONDS)",
    ),
    "stalled": ("Timeout (0:20:00)!",),
    "peer loss": (
        "XlaRuntimeError: FAILED_PRECONDITION: Gloo all-reduce failed: [pair.cc:547] Connection closed by peer [127.0.0.1]:5",
        "jax.errors.JaxRuntimeError: UNKNOWN: Gloo context initialization failed: [pair.h:311] Connect timeout [none]",
    ),
}
"""Worded by our trainer, by Python's faulthandler, and by Gloo in our own runs; whole logs of such are in `real_logs/`."""

REAL = {
    "leader_killed": (134, "transient", "peer loss"),
    "leader_killed_in_collective": (1, "transient", "peer loss"),
    "peer_killed": (134, "transient", "peer loss"),
    "peer_killed_in_collective": (134, "transient", "peer loss"),
    "coordinator_absent": (134, "transient", "peer loss"),
    "diverged_alone": (134, "permanent", "diverged"),
    "device_memory": (1, "permanent", "device memory"),
    "numpy_memory": (1, "permanent", "own memory"),
    "python_memory": (1, "permanent", "own memory"),
    "connection_refused": (1, "transient", "network"),
    "name_not_resolved": (1, "transient", "network"),
    "disk_full": (1, "transient", "disk pressure"),
    "bucket_503": (1, "transient", "object store"),
    "bucket_429": (1, "transient", "object store"),
    "bucket_cut": (1, "transient", "network"),
    "bucket_404": (1, "permanent", "missing input"),
    "pip_install": (1, "transient", "worker environment"),
}
"""Exit code and verdict of whole logs (`real_logs/NAME.txt`) of processes that really ended so on this machine on 2026-11-22:
jax 0.11.2 in two processes over gloo, one killed by SIGKILL, absent, or ended by an exception of its own; google-cloud-storage
3.17.1 against the lab's server for longer than its retries; numpy 2.5.5, Python 3.12, pip. Paths were shortened, frames of C++
cut and the line of the exception worded as the trainer's, nothing else."""

KUBELET = {
    "own disk": (
        'Evicted : Container train exceeded its local ephemeral storage limit "50Gi". ',
        "Evicted : Pod ephemeral local storage usage exceeds the total limit of containers 50Gi. ",
        'Evicted : Usage of EmptyDir volume "scratch" exceeds the limit "50Gi". ',
    ),
    "neighbours memory": ("Evicted : The node was low on resource: memory. ",),
    "disk pressure": ("Evicted : The node was low on resource: ephemeral-storage. ",),
    "node loss": ("Evicted : The node had condition: [PIDPressure]. ",),
    "missing image": (" ErrImageNeverPull: ",),
    "image pull": (" ImageInspectError: ", " RegistryUnavailable: "),
}
"""Reasons and messages in the kubelet's own source (kubernetes/kubernetes, pkg/kubelet: eviction/helpers.go, images/types.go),
as `classify_pod` puts them together; what of them depends on a cluster (image and volume names, sizes) is ours."""

FROM_MEMORY = {
    "preemption": ("Terminated : Pod was terminated in response to imminent node shutdown.", "Preempting :", "NodeShutdown :"),
    "own memory": (" OOMKilled: ",),
    "bad spec": (
        " InvalidImageName: ", " CreateContainerConfigError: ",
        ' StartError: exec: "python": executable file not found in $PATH',
    ),
    "missing volume": (
        ' ContainerCreating: FailedMount: MountVolume.SetUp failed for volume "mount-0" : secret "gcs-credentials" not found',
    ),
    "container start": (
        " CreateContainerError: context deadline exceeded", " ContainerCannotRun: ",
        " StartError: failed to create containerd task: OCI runtime create failed: unable to start container",
        " RunContainerError: failed to start container: OCI runtime create failed: nvidia-container-cli: device error",
    ),
    "never started": (" ContainerCreating: ", " PodInitializing: "),
    "missing image": (' ErrImagePull: failed to resolve reference "marin:gone": not found',),
    "image pull": (" ImagePullBackOff: Back-off pulling image", " ErrImagePull: rpc error: code = Unknown"),
    "neighbours memory": ("SystemOOM : ",),
    "node loss": ("NodeLost : ", "NodeAffinity : ", "OutOfcpu : ", "UnexpectedAdmissionError : "),
}  # fmt: skip
"""Words of Kubernetes that no run of ours has printed (the lab's kubelet is our own)."""

LINES_FROM_MEMORY = {
    "hardware fault": (
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "NVRM: Xid (PCI:0000:18:00): 79, pid=1234, GPU has fallen off the bus.",
        "Unable to determine the device handle for GPU 0000:18:00.0: GPU is lost.  Reboot the system to recover this GPU",
        "XlaRuntimeError: INTERNAL: NCCL operation ncclAllReduce(...) failed: unhandled cuda error (run with NCCL_DEBUG=INFO)",
    ),
    "credentials service": (
        "google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found.",
        "google.auth.exceptions.TransportError: Failed to retrieve http://metadata.google.internal/computeMetadata/v1/instance/",
        "google.auth.exceptions.RefreshError: ('Failed to retrieve token from the Compute Engine metadata service', 503)",
    ),
    "device memory": (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
        "space hbm. Used 19.20G of 15.48G hbm. Exceeded hbm capacity by 3.72G.",
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    ),
    "missing input": (
        "NoSuchKey: The specified key does not exist.",
        "google.api_core.exceptions.NotFound: 404 GET https://storage.googleapis.com/: No such object: b/a",
        "requests.exceptions.HTTPError: 404 Not Found for url",
    ),
    "slice health": (
        "RuntimeError: The TPU is already in use by process with pid 7",
        "RuntimeError: TPU initialization failed: Failed to connect",
        "the slice was restarted with a different launch id",
    ),
    "peer loss": (
        "jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: saves",
        "NCCL WARN Net : ncclRemoteError: remote error, peer closed",
        "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: The following tasks are unhealthy; coordination service stopped",
    ),
    "object store": (
        "google.api_core.exceptions.ServiceUnavailable: 503 POST https://storage.googleapis.com/upload: Service Unavailable",
        "gcsfs.retry.HttpError: Error code 502, message='Bad Gateway', status 502",
        "google.api_core.exceptions.TooManyRequests: 429 Too Many Requests: rateLimitExceeded",
        "reason: rateLimitExceeded",
        "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation",
    ),
    "network": (
        "urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='pypi.org', port=443): Read timed out.",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    ),
}
"""Lines of TPUs, CUDA, NCCL and clients that we have not run against their services, in their form of 2026 as remembered."""

PERMANENT = {
    "diverged": (
        "FloatingPointError: run smoke: step 3 has loss nan and gradient norm nan; its update was left out, the last ",
    ),
    "missing input": (
        "ValueError: runs/tiny/checkpoint[step-00000050]: input mixture/default/- (abc) is gone; materialize it again",
        "FileNotFoundError: [Errno 2] No such file or directory: '/etc/marin/job.json'",
        "lineage.trust.gate.GateError: runs/tiny/checkpoint is refused, its ancestors are not fit to build on:",
    ),
    "bad spec": (
        "ValueError: run smoke: model.vocab_size is 8192, the mixture's caches have 1024",
        "ModuleNotFoundError: No module named 'trainer'",
    ),
    "program error": ("AssertionError", "RuntimeError: a token that is refused by a service that is not ours"),
}
"""Of our own engines (the words are theirs today) and of Python."""
