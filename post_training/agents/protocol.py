"""The protocol of a turn: a thought, then one command in a fence. Published agents use it (mini-swe-agent, SWE-ZERO)."""

import re
from dataclasses import dataclass

MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""`echo MARKER` as the first line of a fence submits the lines after it."""
SYSTEM = f"""You look at a repository through a shell. You cannot run its code or change it.

Each answer has a THOUGHT in plain words, then exactly one command in a fence:

THOUGHT: what you want to know next.

```bash
grep -rn "def parse" --include=*.py .
```

There are ls, cat, grep, sed -n, find, head, tail, wc, cd, pwd and echo, with pipes, && and ;. Every command starts in the
repository's root. When you know the answer, submit it in a fence whose first line is the marker:

```bash
echo {MARKER}
your answer
```"""
_FENCE = re.compile(r"^```(?:bash|sh)?[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Turn:
    """What a model said in a turn. Exactly one of command, answer and fault is set."""

    thought: str
    command: str = ""
    answer: str | None = None
    fault: str = ""


def parse_turn(text: str) -> Turn:
    """Read a turn. A text without one fence, or with an empty one, has a fault. The next message names it."""
    fences = _FENCE.findall(text)
    thought = _FENCE.split(text)[0].strip()
    if len(fences) != 1:
        return Turn(thought, fault=f"Your answer has {len(fences)} commands; give exactly one in a ```bash fence.")
    command = fences[0].strip()
    if not command:
        return Turn(thought, fault="The fence is empty; give one command in it.")
    first, _, rest = command.partition("\n")
    if first.strip() in (f"echo {MARKER}", f'echo "{MARKER}"', f"echo '{MARKER}'"):
        return Turn(thought, answer=rest.strip())
    return Turn(thought, command=command)
