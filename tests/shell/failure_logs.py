"""Ends of logs as they were seen, by the class they belong to: test data of the classifier, each with where it was seen."""

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
"""Marin's agent guidelines, "Common Failure Signatures Seen in OLMoE Sweeps (v5p-16 multislice)": all transient."""

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
        "E1121 coordination_service.cc:1045] /job:jax_worker/replica:0/task:1: Heartbeat timeout from the task.",
        "XlaRuntimeError: FAILED_PRECONDITION: Gloo all-reduce failed: [pair.cc:547] Connection closed by peer [127.0.0.1]:5",
        "jax.errors.JaxRuntimeError: UNKNOWN: Gloo context initialization failed: [pair.h:311] Connect timeout [none]",
        "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: The following tasks are unhealthy; coordination service stopped",
    ),
    "object store": (
        "google.api_core.exceptions.ServiceUnavailable: 503 POST https://storage.googleapis.com/upload: Service Unavailable",
        "gcsfs.retry.HttpError: Error code 502, message='Bad Gateway', status 502",
        "google.api_core.exceptions.TooManyRequests: 429 Too Many Requests: rateLimitExceeded",
    ),
    "network": ("ConnectionResetError: [Errno 104] Connection reset by peer",),
    "disk pressure": ("OSError: [Errno 28] No space left on device: '/scratch/fetched'",),
}
"""Worded by our trainer, by JAX's coordination service, by Google's clients and by Linux (from memory, in their form of 2026),
and by Python's faulthandler."""

PERMANENT = {
    "diverged": (
        "FloatingPointError: run smoke: step 3 has loss nan and gradient norm nan; its update was left out, the last ",
    ),
    "device memory": (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
        "space hbm. Used 19.20G of 15.48G hbm. Exceeded hbm capacity by 3.72G.",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 34359738368 bytes.",
    ),
    "own memory": ("MemoryError", "numpy.exceptions: Unable to allocate 14.9 GiB for an array with shape (2000000000,)"),
    "missing input": (
        "ValueError: runs/tiny/checkpoint[step-00000050]: input mixture/default/- (abc) is gone; materialize it again",
        "FileNotFoundError: [Errno 2] No such file or directory: '/etc/marin/job.json'",
        "lineage.gate.GateError: runs/tiny/checkpoint is refused, its ancestors are not fit to build on:",
    ),
    "bad spec": (
        "ValueError: run smoke: model.vocab_size is 8192, the mixture's caches have 1024",
        "ModuleNotFoundError: No module named 'trainer'",
    ),
    "program error": ("AssertionError", "RuntimeError: a token that is refused by a service that is not ours"),
}
"""Of our own engines (the words are theirs today) and of XLA."""
