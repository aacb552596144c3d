"""Model FLOPs utilization (MFU) of a run, by two counts of the same work.

Levanter's count (`DecoderConfig.training_flops_per_token`) lets every query meet every key of its span; the causal
count lets it meet only the keys that its mask allows, about half. The first compares with what Levanter and others
publish, the second is the actual work. Peaks are dense bfloat16 from the vendors' data sheets, for every precision, as
in Levanter (docs/references.md#levanter-flops).
"""

import logging
import re
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from trainer.spec.checks import require
from trainer.spec.config import RunSpec

log = logging.getLogger("trainer")

PEAK_TFLOPS = (
    (r"h200|h100.*(hbm3|sxm)|h100$|gh200", 989.5),
    (r"h100", 756.0),
    (r"gb200|b200", 2500.0),
    (r"a100", 312.0),
    (r"\bl4\b", 121.0),
    (r"tpu v6 ?(lite|e)", 918.0),
    (r"tpu v5 ?(lite|e)", 197.0),
    (r"tpu v5", 459.0),
    (r"tpu v4", 275.0),
)
"""TFLOP/s of a device by a pattern of `jax.Device.device_kind` in lower case; the first match counts."""
MEASURED_SIDE = 2048
MEASURED_TIMES = 5


@dataclass(frozen=True)
class Arithmetic:
    """FLOPs of one token of a run, forward and backward, and the peak of its devices together."""

    levanter: float
    """FLOPs per token, with attention over the whole span."""
    causal: float
    """FLOPs per token, with attention over the visible keys."""
    peak: float | None
    """FLOP/s of all devices; None if unknown."""
    source: str
    """Where the peak comes from, in words."""

    def rates(self, tokens_per_second: float) -> dict[str, float]:
        """GFLOP/s by both counts, and MFU if the peak is known."""
        both = {"": self.levanter * tokens_per_second, "_causal": self.causal * tokens_per_second}
        speeds = {f"gflops_per_second{kind}": rate / 1e9 for kind, rate in both.items()}
        return speeds if self.peak is None else speeds | {f"mfu{kind}": rate / self.peak for kind, rate in both.items()}

    def describe(self) -> str:
        """One line for the log."""
        counts = f"{self.levanter / 1e6:.1f} MFLOP per token by Levanter's count, {self.causal / 1e6:.1f} causal"
        if self.peak is None:
            return f"{counts}; no MFU: {self.source}"
        return f"{counts}; MFU is a share of {self.peak / 1e12:.2f} TFLOP/s ({self.source})"


def arithmetic(spec: RunSpec, peak: str) -> Arithmetic:
    """The counts of a run, and the peak of the devices of all its processes.

    `peak` is the TFLOP/s of one device as text, `measure` to time a product of two large matrices here, or empty for the data
    sheet. Raises: ValueError naming the variable for any other text.
    """
    model, length = spec.model, spec.context_len
    counts = model.training_flops_per_token(length), model.training_flops_per_token(length, causal=True)
    kind, devices = jax.devices()[0].device_kind, jax.device_count()
    if peak == "measure":
        side = MEASURED_SIDE
        return Arithmetic(
            *counts, devices * matmul_flops(spec.compute.dtype), f"measured, {side} x {side} {spec.compute.dtype}"
        )
    if peak:
        number = re.fullmatch(r"\d+(\.\d+)?", peak)
        require(number is not None and float(peak) > 0, "MARIN_PEAK_TFLOPS", peak, "TFLOP/s of a device, or measure")
        return Arithmetic(*counts, devices * float(peak) * 1e12, f"MARIN_PEAK_TFLOPS {peak} x {devices}")
    tflops = sheet_tflops(kind)
    if tflops is None:
        return Arithmetic(*counts, None, f"the peak of {kind} is unknown; set MARIN_PEAK_TFLOPS to a number or to measure")
    return Arithmetic(*counts, devices * tflops * 1e12, f"{devices} x {kind}, dense bfloat16")


def sheet_tflops(kind: str) -> float | None:
    """The data sheet's TFLOP/s of a kind of device; None if unknown.

    >>> sheet_tflops("NVIDIA H200"), sheet_tflops("NVIDIA H100 PCIe"), sheet_tflops("TPU v5 lite"), sheet_tflops("cpu")
    (989.5, 756.0, 197.0, None)
    """
    return next((tflops for pattern, tflops in PEAK_TFLOPS if re.search(pattern, kind.lower())), None)


def matmul_flops(dtype: str) -> float:
    """FLOP/s of one device in a product of two square matrices: the best of a few timed runs."""
    square = jnp.ones((MEASURED_SIDE, MEASURED_SIDE), dtype)
    product = jax.jit(jnp.matmul)
    product(square, square).block_until_ready()
    seconds = []
    for _ in range(MEASURED_TIMES):
        started = time.perf_counter()
        product(square, square).block_until_ready()
        seconds.append(time.perf_counter() - started)
    return 2 * MEASURED_SIDE**3 / min(seconds)
