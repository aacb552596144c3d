"""Render chat templates in a limited child process: the script that `template_process.py` starts.

A template comes with a model, and Jinja's sandbox limits neither time nor memory: nested `{% for %}` loops may never end, and
`'x' * 10**10` takes all memory. Input and output are lines of JSON. Imports only the standard library and Jinja.
"""

import functools
import json
import resource
import sys
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE_FAULTS = (
    TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, SyntaxError, TypeError,
    ValueError,
)  # fmt: skip
"""Errors of a template's expressions on unexpected messages, such as `1 + message.content`."""
KEPT_TEMPLATES = 4
SHOWN_CHARACTERS = 500


class GenerationBlock(Extension):
    """Renders the content of `{% generation %}...{% endgeneration %}`, a block of training templates."""

    tags = {"generation"}  # noqa: RUF012 - the type that Jinja declares

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@functools.lru_cache(KEPT_TEMPLATES)
def compiled(source: str) -> Template:
    """Compile as transformers does: blocks leave no blank line, loops have `break`, JSON is not escaped for HTML."""
    extensions = [GenerationBlock, "jinja2.ext.loopcontrols"]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    return environment.from_string(source)


def rendered(source: str, given: dict[str, Any], most_characters: int) -> str:
    """Render a template with these variables. Raises: one of `TEMPLATE_FAULTS`; ValueError for more than `most_characters`."""
    pieces, length = [], 0
    names = given | {"raise_exception": _raise, "strftime_now": lambda form: datetime.now().strftime(form)}
    for piece in compiled(source).generate(**names):
        pieces.append(piece)
        length += len(piece)
        if length > most_characters:
            raise ValueError(f"the text has more than {most_characters} characters")
    return "".join(pieces)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def answered(line: bytes) -> dict[str, str]:
    """Return the answer to one request: the rendered text, or the fault of the template."""
    request = json.loads(line)
    try:
        return {"text": rendered(request["source"], request["given"], request["most_characters"])}
    except TEMPLATE_FAULTS as fault:
        return {"fault": (str(fault) or type(fault).__name__)[:SHOWN_CHARACTERS]}


def main(memory_bytes: int) -> None:
    """Answer one request a line on stdin, with at most `memory_bytes` of memory and no files."""
    for kind, most in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (most, most))
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(json.dumps(answered(line)).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
