"""`python -m fuzz [TARGET ...] [--inputs 100000] [--seed 0]`: exit status 1 when a target broke."""

import argparse
import importlib
import logging
import sys

from fuzz.run import run

TARGETS = ("manifests", "readers", "imports", "http_service", "specs", "templates")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; by default all")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # a hundred thousand refusals
    sound = True
    for name in arguments.targets or TARGETS:
        report = run(importlib.import_module(f"fuzz.targets.{name}").target(), arguments.inputs, arguments.seed)
        print(report, flush=True)
        for fault, case in report.faults.items():
            print(f"  {fault}: {case}", flush=True)
        sound &= report.sound
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    main()
