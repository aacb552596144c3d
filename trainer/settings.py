"""How a declared run is to run: what its recipe, or a person in the UI, tells its job. In no identity.

Names and values are those of `trainer.running`, which reads and checks them where the job runs; this module imports no JAX.
"""

from dataclasses import dataclass

NAMES = (
    "MARIN_MESH",
    "MARIN_ROLLING_SECONDS",
    "MARIN_TRACKERS",
    "MARIN_WATCH_STEPS",
    "MARIN_PROFILE",
    "MARIN_STALL_SECONDS",
    "MARIN_PEAK_TFLOPS",
    "MARIN_EVAL",
    "MARIN_FAULTS",
)


@dataclass(frozen=True)
class RunSettings:
    """Every field has a default in `trainer.running.Running`; what is None or empty is left to it."""

    trackers: tuple[str, ...] = ()
    """Besides the JSON lines: tensorboard, wandb."""
    evaluation: str = ""
    """Held-out texts that are scored on the way, `FILE@STEPS`; the file as the job finds it."""
    profile: str = ""
    """Steps of a profiler trace, `FIRST+COUNT`."""
    rolling_seconds: float | None = None
    watch_steps: int | None = None
    meshes: tuple[tuple[str, str], ...] = ()
    """(hardware, mesh like `data=4,tensor=2`) where the preset's mesh is not meant (`recipes/hardware.py`)."""

    def arguments(self) -> tuple[str, ...]:
        """What the job is told wherever it runs."""
        values = {
            "MARIN_TRACKERS": ",".join(self.trackers),
            "MARIN_EVAL": self.evaluation,
            "MARIN_PROFILE": self.profile,
            "MARIN_ROLLING_SECONDS": "" if self.rolling_seconds is None else f"{self.rolling_seconds:g}",
            "MARIN_WATCH_STEPS": "" if self.watch_steps is None else str(self.watch_steps),
        }
        return tuple(f"{name}={value}" for name, value in values.items() if value)


def mesh_argument(mesh: str) -> str:
    """A mesh as the job is told it."""
    return f"MARIN_MESH={mesh}"
