"""How good a score is: ranking, calibration, and the two numbers that turn a logit into a probability."""

from dataclasses import dataclass

import numpy as np

BINS = 10
NEWTON_STEPS = 50


@dataclass(frozen=True)
class Platt:
    """probability = 1 / (1 + exp(-(slope * logit + offset))) (Platt 1999)."""

    slope: float = 1.0
    offset: float = 0.0

    def probability(self, logits: np.ndarray) -> np.ndarray:
        return sigmoid(self.slope * logits + self.offset)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return probabilities of logits, which are cut to -60..60 so that exp does not overflow."""
    return 1.0 / (1.0 + np.exp(-np.clip(logits, -60.0, 60.0)))


def fitted_platt(logits: np.ndarray, labels: np.ndarray) -> Platt:
    """Return the likeliest slope and offset, by Newton's method, with Platt's smoothed targets (no label is certain)."""
    positive, negative = float(labels.sum()), float((~labels).sum())
    targets = np.where(labels, (positive + 1) / (positive + 2), 1 / (negative + 2))
    scale = max(float(np.std(logits)), 1e-9)
    features = np.stack([logits / scale, np.ones_like(logits)])
    theta = np.zeros(2)
    for _ in range(NEWTON_STEPS):
        probability = sigmoid((theta[:, None] * features).sum(0))
        gradient = (features * (probability - targets)).sum(1) + 1e-9 * theta
        weighted = features * (probability * (1 - probability))
        curvature = np.array([[(a * b).sum() for b in features] for a in weighted]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        theta -= np.clip(step, -4.0, 4.0)
        if np.abs(step).max() < 1e-10:
            break
    return Platt(round(float(theta[0] / scale), 9), round(float(theta[1]), 9))


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the chance that a positive scores above a negative, ties counted half. Raises: ValueError without both
    labels.
    """
    positive, negative = int(labels.sum()), int((~labels).sum())
    if not positive or not negative:
        raise ValueError(f"AUC needs both labels; there are {positive} positive and {negative} negative")
    return float((_mean_ranks(scores)[labels].sum() - positive * (positive + 1) / 2) / (positive * negative))


def _mean_ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1 on, equal values with their mean rank. `scipy.stats` has this and takes half a second to
    import, in every worker.
    """
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def reliability(probabilities: np.ndarray, labels: np.ndarray) -> list[dict[str, float]]:
    """Return rows of a reliability table, ten bins of equal width without empty ones: low, documents, predicted,
    positive.
    """
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    return [
        {
            "low": b / BINS,
            "documents": int((bins == b).sum()),
            "predicted": round(float(probabilities[bins == b].mean()), 6),
            "positive": round(float(labels[bins == b].mean()), 6),
        }
        for b in range(BINS)
        if (bins == b).any()
    ]


def expected_calibration_error(table: list[dict[str, float]]) -> float:
    """Return the mean distance of predicted and actual share over the bins, weighted by documents (Naeini et al. 2015)."""
    total = sum(row["documents"] for row in table)
    return sum(row["documents"] * abs(row["predicted"] - row["positive"]) for row in table) / total
