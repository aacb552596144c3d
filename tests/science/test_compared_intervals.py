"""What the lab's intervals and fits are compared with: other intervals, and a peer's simulator."""

import numpy as np
import pytest

from benchmarks.science.peer_simulator import judged, our_exponents
from science.laws.comparators import compare


def test_our_exponents_of_a_peers_points_are_its_laws() -> None:
    random = np.random.default_rng(0)
    n, ratio = np.exp(random.uniform(14, 18, 40)), np.exp(random.uniform(2, 5, 40))
    d = n * ratio
    losses = 1.69337368 + 406.401018 * n**-0.33917084 + 410.722827 * d**-0.2849083
    found = our_exponents({"n": n.tolist(), "d": d.tolist(), "losses": losses.tolist()})
    np.testing.assert_allclose(found, [0.33917084, 0.2849083], rtol=1e-5)


def test_the_bar_counts_only_where_the_peer_finds_the_exponent() -> None:
    near, far = np.array([0.01, 0.04, 0.9]), np.array([0.02, 0.2, 0.3])
    assert judged(near, near) == "met" and judged(far, near) == "missed"
    assert judged(near, far) == "none: the peer is beyond 0.1"


@pytest.mark.slow
def test_a_wrongly_pinned_asymptote_misses_every_far_run_where_the_noise_is_small() -> None:
    far = {row.law: row for row in compare(8, 0.001, seed=0) if row.ratio == 10}
    assert far["chinchilla"].pinned == far["refit"].pinned == 0
    assert far["chinchilla"].student > 0.5 and far["refit"].bootstrap > 0.4
    assert far["farseer"].student == 0, "the wrong form alone"
