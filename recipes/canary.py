"""What a canary must show: a loss inside a recorded band, a throughput near its recent median."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CanaryBand:
    """Bounds of a canary run on one kind of hardware, recorded with their origin."""

    hardware: str
    low_loss_nats: float
    high_loss_nats: float
    min_throughput_ratio: float
    """Warn when tokens a second fall below this share of the median of recent runs; never on fewer than `min_runs`."""

    min_runs: int = 3
    window_runs: int = 14

    def __post_init__(self) -> None:
        if not 0 < self.low_loss_nats < self.high_loss_nats:
            raise ValueError(
                f"canary band of {self.hardware}: low {self.low_loss_nats} and high {self.high_loss_nats} nats; "
                "0 < low < high is needed"
            )
