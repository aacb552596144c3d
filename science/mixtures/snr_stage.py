"""Signal to noise of every target of a swarm, as an artifact: which targets can choose between mixtures at all."""

import json
from dataclasses import dataclass

from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.mixtures.evidence import SignalToNoise, signal_to_noise
from science.mixtures.runs import read_runs


@dataclass(frozen=True)
class SnrConfig:
    """The difference for which the number of pairs is stated, in the unit of the loss."""

    difference: float = 0.01


def measure_noise(out: Writer, config: SnrConfig, table: Artifact) -> None:
    """Write `snr.json`: the spread of the designs against that of the repeats at each anchor.

    Raises: ValueError for fewer than two repeats at an anchor.
    """
    runs = read_runs(table)
    rows = []
    for target in runs.losses:
        measured = signal_to_noise(target, runs.designs(target), runs.repeats(target))
        rows.append(
            {
                "target": target,
                "signal": measured.signal,
                "noise": measured.noise,
                "ratio": measured.ratio,
                "pairs": measured.runs_for(config.difference),
            }
        )
    (out.folder / "snr.json").write_text(json.dumps(rows, indent=1) + "\n")
    out.extra["snr"] = {"difference": config.difference, "targets": rows}
    out.record(rows_in=len(runs.names), rows_out=len(rows))


def ratios(snr: Artifact) -> dict[str, float]:
    """Signal to noise by target."""
    rows = snr.manifest.extra["snr"]["targets"]
    return {row["target"]: SignalToNoise(row["target"], row["signal"], row["noise"]).ratio for row in rows}


SWARM_SNR = Stage(
    "science.swarm_snr", "1", measure_noise, description="Signal to noise of each target of a swarm.", checks=("file_set",)
)
