"""A job that reports progress: `python -m telling_job job.json`."""

from lineage.messages import Progress


def main() -> None:
    progress = Progress("counting", 3)
    for done in range(4):
        progress.at(done, lambda n=done: {"loss_nats": 4.0 - n})
        print(f"at {done}", flush=True)


if __name__ == "__main__":
    main()
