"""How many examples a property is tried with: 15 in `make test`, 150 in `make test-long`, the same ones in every run."""

from hypothesis import HealthCheck, settings

CI_EXAMPLES = 15
LONG_EXAMPLES = 150
THOUSAND_EXAMPLES = 1_000


def register_profiles() -> None:
    """Register the profiles `ci`, `long` and `thousand` and load `ci`; `--hypothesis-profile=long` loads another.

    No property depends on the speed of the machine (no deadline, no health check of speed) or on chance (`derandomize`).
    """
    for name, count in (("ci", CI_EXAMPLES), ("long", LONG_EXAMPLES), ("thousand", THOUSAND_EXAMPLES)):
        settings.register_profile(
            name,
            max_examples=count,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
            print_blob=True,
        )
    settings.load_profile("ci")


def examples(ci: int) -> int:
    """Examples of a property whose examples are slow: three in five of `ci` in the profile `ci`, `6 * ci` in `long`."""
    return max(2, ci * settings().max_examples // 25)
