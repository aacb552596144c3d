"""Run by `test_image_environment.py` with the image's packages: the production instance, a run, its log in the bucket."""

import sys

import dagster as dg


@dg.asset
def talking() -> None:
    print("said in the run")


def main(home: str) -> None:
    with dg.DagsterInstance.from_config(home) as instance:
        result = dg.materialize([talking], instance=instance)
        print(f"logs: {type(instance.compute_log_manager).__name__}")
        print(f"run: {result.success}")
        try:
            print(f"launcher: {type(instance.run_launcher).__name__}")
        except Exception as error:  # its configuration was read, and it looks for the pod that it is not in
            print(f"launcher: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
