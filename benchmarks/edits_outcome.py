"""What became of every artifact after an edit, held against what must become of it, as tables."""

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.edits_row import Edit

type Answers = dict[str, dict[str, Any]]
"""By the name of an artifact: what `benchmarks/edits_probe.py` found."""

COLUMNS = (
    "#", "edit", "kind", "reused", "flagged", "equal", "differs", "open", "rebuilt", "same bytes", "would run", "verdict",
)  # fmt: skip
MARIN_COLUMNS = ("Marin again", "for nothing", "stale")


@dataclass(frozen=True)
class Outcome:
    """What happened after an edit, by artifact."""

    edit: Edit
    answers: Answers
    base: Answers
    seconds: float
    problem: str

    def names(self, **wanted: object) -> list[str]:
        return [name for name, answer in self.answers.items() if all(answer.get(key) == value for key, value in wanted.items())]

    @property
    def flagged(self) -> list[str]:
        return [name for name, answer in self.answers.items() if answer.get("flagged")]

    @property
    def open(self) -> list[str]:
        return [name for name in self.flagged if "outcome" not in self.answers[name]]

    @property
    def made(self) -> list[str]:
        """What was made again, or would be."""
        return [name for name, answer in self.answers.items() if answer["status"] != "reused"]

    @property
    def same_bytes(self) -> list[str]:
        return [
            n
            for n in self.names(status="rebuilt")
            if self.answers[n]["data_version"] == self.base.get(n, {}).get("data_version")
        ]

    @property
    def silent_misses(self) -> list[str]:
        return self.names(oracle="differs")

    @property
    def changed(self) -> list[str]:
        """Artifacts whose bytes the edit changes, as far as they were made."""
        rebuilt = set(self.names(status="rebuilt")) - set(self.same_bytes)
        return sorted({*rebuilt, *self.names(outcome="differs"), *self.silent_misses})

    def stages(self, names: list[str]) -> frozenset[str]:
        return frozenset(self.answers[name]["stage"] for name in names)

    @property
    def verdict(self) -> str:
        if self.problem:
            return self.problem
        known = f" (known: {self.edit.known_miss})" if self.edit.known_miss else ""
        if refused := self.names(status="refused"):
            return f"REFUSED{known}: {', '.join(sorted(self.stages(refused)))}"
        if self.silent_misses:
            return f"MISSED{known}: {', '.join(sorted(self.stages(self.silent_misses)))}"
        compared = {
            "rebuilt": (self.edit.rebuilt, self.stages(self.made)),
            "flagged": (self.edit.flagged, self.stages(self.flagged)),
            "differs": (self.edit.differs, self.stages(self.names(outcome="differs"))),
        }
        differences = [
            f"{what} {sign} {', '.join(sorted(each))}"
            for what, (wanted, named) in compared.items()
            for sign, each in (("also", named - wanted), ("not", wanted - named))
            if each
        ]
        return f"UNEXPECTED: {'; '.join(differences)}" if differences else "as it must"

    @property
    def marin(self) -> tuple[int, int, int]:
        """By Marin's rules: artifacts made again, those of them whose bytes are the same, changed ones reused in silence."""
        again = [n for n, answer in self.answers.items() if answer["marin"] != self.base.get(n, {}).get("marin")]
        kept = {*self.names(status="reused"), *self.same_bytes}
        return len(again), len([n for n in again if n in kept]), len([n for n in self.changed if n not in again])


def outcome_table(outcomes: list[Outcome]) -> Table:
    table = Table(title="what the lab does after an edit, in artifacts", show_lines=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("edit", "kind", "verdict") else "right")
    for column in MARIN_COLUMNS:
        table.add_column(column, justify="right", style="dim")
    for number, outcome in enumerate(outcomes, 1):
        table.add_row(*row(number, outcome))
    return table


def row(number: int, outcome: Outcome) -> list[str]:
    """The cells of one edit; a zero is a dot."""
    counts = [
        len(outcome.names(status="reused")), len(outcome.flagged), len(outcome.names(outcome="equal")),
        len(outcome.names(outcome="differs")), len(outcome.open), len(outcome.names(status="rebuilt")), len(outcome.same_bytes),
        len(outcome.names(status="would_run")) + len(outcome.names(status="behind")),
    ]  # fmt: skip
    cells = [str(count) if count else "." for count in counts]
    marin = [str(count) if count else "." for count in outcome.marin] if outcome.answers else [""] * 3
    return [str(number), outcome.edit.name, outcome.edit.kind, *cells, outcome.verdict, *marin]


def summary(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    answered = [outcome for outcome in outcomes if outcome.answers]
    changing = [outcome for outcome in answered if outcome.changed]
    vain = [outcome for outcome in answered if outcome.flagged and not outcome.names(outcome="differs")]
    return [
        ("edits asked", str(len(answered))),
        ("as it must", str(sum(outcome.verdict == "as it must" for outcome in answered))),
        ("edits that change bytes of an artifact that was made", str(len(changing))),
        ("... of them missed", str(sum(bool(outcome.silent_misses) for outcome in answered))),
        ("edits that rebuild what need not be", str(sum(bool(o.stages(o.made) - o.edit.rebuilt) for o in answered))),
        ("edits that only flag, and evidence clears all that was made", str(len(vain))),
        ("Marin's rules (simulated): edits with something stale in silence", str(sum(o.marin[2] > 0 for o in answered))),
        (
            "Marin's rules (simulated): edits with something made again for the same bytes",
            str(sum(o.marin[1] > 0 for o in answered)),
        ),
    ]


def summary_table(outcomes: list[Outcome]) -> Table:
    table = Table("", "edits", title="summary")
    for cells in summary(outcomes):
        table.add_row(*cells)
    return table


def markdown(outcomes: list[Outcome], cost: str) -> str:
    """The note: the table, every expectation with its reason, the summary."""
    head = [*COLUMNS, *MARIN_COLUMNS, "why it must"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for number, outcome in enumerate(outcomes, 1):
        lines.append("| " + " | ".join([*row(number, outcome), outcome.edit.why]).replace("\n", " ") + " |")
    lines += ["", "| | |", "|---|---|", *(f"| {what} | {count} |" for what, count in summary(outcomes))]
    return "\n".join([*lines, "", f"{cost}.", ""])
