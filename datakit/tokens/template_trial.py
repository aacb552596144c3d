"""Render a chat template once in a limited child process, before this process compiles it.

A template often comes with a published model, and Jinja's sandbox limits neither time nor memory: nested loops may never end,
and `'x' * 10**10` takes all memory when the template is compiled. What a template does only for some conversations is not
seen here; the memory limit of a shard holds that (`lineage.shards.run.ShardLimits`).
"""

import functools
import json
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from jinja2 import TemplateError

from datakit.tokens.chat_template import ChatTemplate, Conversation

SECONDS, MEMORY_BYTES, MOST_CHARACTERS = 5, 1 << 30, 8 << 20
SAID = (("system", "Be brief."), ("user", "1 + 1?"), ("assistant", "2"), ("user", "2 + 2?"), ("assistant", "4"))
SAMPLE = Conversation(tuple({"role": role, "content": content} for role, content in SAID))
OVERRUN = 3
"""Exit status of a child whose template exceeded a limit that Python sees."""


@functools.lru_cache(maxsize=16)
def refuse_overrun(template: ChatTemplate, seconds: int = SECONDS) -> None:
    """Refuse a template that exceeds some seconds of processor time, 1 GiB or 8 Mi characters for five messages.

    One that refuses the conversation passes: it may accept others. Raises: ValueError with the limit that was exceeded.
    """
    root = Path(__file__).parents[len(__name__.split(".")) - 1]
    code = f"import sys; sys.path.insert(0, {str(root)!r}); from {__name__} import main; main()"
    fields = {"source": template.source, "bos_token": template.bos_token, "eos_token": template.eos_token}
    given = json.dumps({"template": fields, "seconds": seconds})
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(_refused("it did not end in 60 s")) from None
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise ValueError(_refused(f"it took more than {seconds} s of processor time"))
    if done.returncode == OVERRUN:
        raise ValueError(_refused(done.stderr.strip()[-500:]))
    if done.returncode != 0:
        raise RuntimeError(f"the trial of a chat template ended with {done.returncode}: {done.stderr.strip()[-2000:]}")


def main() -> None:
    """Render the template of standard input under limits."""
    given = json.load(sys.stdin)
    for kind, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, given["seconds"]), (resource.RLIMIT_FSIZE, 0)):
        resource.setrlimit(kind, (most, most))
    try:
        template = ChatTemplate(**given["template"])
        for conversation in (SAMPLE, replace(SAMPLE, messages=SAMPLE.messages[1:])):
            if len(template.render(conversation, generation_prompt=True)) > MOST_CHARACTERS:
                sys.exit(_overrun(f"it wrote more than {MOST_CHARACTERS:,} characters"))
    except MemoryError:
        sys.exit(_overrun(f"it took more than {MEMORY_BYTES >> 20:,} MiB"))
    except (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, SyntaxError, TypeError, ValueError):
        pass  # it refuses this conversation; that of a document is refused in its turn


def _overrun(why: str) -> int:
    print(why, file=sys.stderr)
    return OVERRUN


def _refused(why: str) -> str:
    return f"the chat template is refused: for a conversation of five messages {why}; take another template"
