"""Coverage of 90 % intervals in simulated sweeps of four laws: `python -m benchmarks.science.coverage 400 --sigma 0.007`.

About 6 CPU minutes for 400 sweeps a law. The table is Markdown; bars and dated results: docs/design/science.md.
"""

import argparse
import time

from science.laws.coverage import study

HEADER = (
    "| law | times the budget | right form | its width | known exponents | Chinchilla alone | envelope | its width | / known |"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweeps", type=int)
    parser.add_argument("--sigma", type=float, default=0.007, help="standard deviation of one run, nats")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
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
