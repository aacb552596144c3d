"""Coverage of 90 % intervals in simulated sweeps of four laws: `python -m benchmarks.science.coverage 400 --sigma 0.0224`.

About 2 CPU minutes for 400 sweeps a law. With `--comparators`, intervals that the lab does not use are measured instead. The
tables are Markdown; bars and dated results: docs/design/science.md.
"""

import argparse
import time

from science.laws.comparators import compare
from science.laws.coverage import study

HEADER = (
    "| law | times the budget | right form | its width | known exponents | Chinchilla alone | envelope | its width | / known |"
)
COMPARED = "| law | times the budget | delta method with Student's t | percentile bootstrap | asymptote pinned .3 too high |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweeps", type=int)
    parser.add_argument(
        "--sigma", type=float, default=0.0224, help="standard deviation of one run, nats; the default is measured"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--comparators", action="store_true", help="the percentile bootstrap and a wrongly pinned asymptote")
    options = parser.parse_args()
    if options.comparators:
        print(COMPARED, "|---" * 5 + "|", sep="\n")
        for row in compare(options.sweeps, options.sigma, options.seed):
            print(f"| {row.law} | {row.ratio:g} | {row.student:.3f} | {row.bootstrap:.3f} | {row.pinned:.3f} |")
        return
    started = time.perf_counter()
    rows = study(options.sweeps, options.sigma, options.seed)
    print(HEADER, "|---" * 9 + "|", sep="\n")
    for row in rows:
        right, width = ("-", "-") if row.right is None else (f"{row.right:.3f}", f"{row.right_width:.4f}")
        print(
            f"| {row.law} | {row.ratio:g} | {right} | {width} | {row.known_width:.4f} | {row.wrong:.3f} | {row.envelope:.3f} "
            f"| {row.envelope_width:.4f} | {row.envelope_width / row.known_width:.2f} |"
        )
    mean = sum(row.envelope for row in rows) / len(rows)
    seconds = time.perf_counter() - started
    print(
        f"\n{options.sweeps} sweeps a law, sigma {options.sigma}, seed {options.seed}: "
        f"envelope mean {mean:.3f}, {seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
