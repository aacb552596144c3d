"""Runtime options of a declared run, set by its recipe or by a person in the UI. Part of no identity.

Names and values are those of `trainer.running`, which reads and checks them where the job runs. This module imports no JAX.
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
    "MARIN_ROLLOUTS",
    "MARIN_FAULTS",
)


@dataclass(frozen=True)
class RuntimeOptions:
    """Options of a run. None or empty means the default of `trainer.running.Running`."""

    trackers: tuple[str, ...] = ()
    """Trackers besides the JSON lines: tensorboard, wandb."""
    evaluation: str = ""
    """Held-out texts to score during the run, `FILE@STEPS`, with the path of the file where the job runs."""
    profile: str = ""
    """Steps of a profiler trace, `FIRST+COUNT`."""
    rolling_seconds: float | None = None
    watch_steps: int | None = None
    meshes: tuple[tuple[str, str], ...] = ()
    """(hardware, mesh like `data=4,tensor=2`) to replace the mesh of a preset (`recipes/hardware.py`)."""

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments that do not depend on the hardware, as `NAME=VALUE`."""
        values = {
            "MARIN_TRACKERS": ",".join(self.trackers),
            "MARIN_EVAL": self.evaluation,
            "MARIN_PROFILE": self.profile,
            "MARIN_ROLLING_SECONDS": "" if self.rolling_seconds is None else f"{self.rolling_seconds:g}",
            "MARIN_WATCH_STEPS": "" if self.watch_steps is None else str(self.watch_steps),
        }
        return tuple(f"{name}={value}" for name, value in values.items() if value)


def mesh_argument(mesh: str) -> str:
    """The argument that sets a mesh."""
    return f"MARIN_MESH={mesh}"
