"""Evidence: the claims of a scenario, its results, and whether they agree."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape


@dataclass(frozen=True)
class Evidence:
    """One line of a scenario's report. `holds` is None for a measurement without an expectation."""

    act: str
    claim: str
    details: str
    holds: bool | None


@dataclass(frozen=True)
class Teller:
    """Prints evidence as it comes and keeps it."""

    console: Console
    kept: list[Evidence]

    def act(self, name: str) -> None:
        self.console.rule(f"[bold]{escape(name)}", align="left")

    def say(self, act: str, claim: str, details: str, holds: bool | None = None) -> None:
        """Keep and print one piece of evidence."""
        evidence = Evidence(act, claim, details, holds)
        self.kept.append(evidence)
        mark = {True: "[green]holds[/]   ", False: "[red]FAILS[/]   ", None: "measured"}[holds]
        self.console.print(f"{mark} {escape(claim)}", soft_wrap=True, highlight=False)
        for line in details.splitlines():
            self.console.print(f"         [dim]{escape(line)}[/]", soft_wrap=True, highlight=False)


def failures(evidence: Sequence[Evidence]) -> list[Evidence]:
    """The expectations that fail."""
    return [each for each in evidence if each.holds is False]
