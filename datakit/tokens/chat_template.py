"""Render a conversation through a chat template into spans that say what is a special token and what an assistant says.

Special tokens come only from the template's own text. The characters of one inside a message stay text: before
rendering, a mark is put into each such place, so that nothing in a message becomes a token of the template; afterwards
the marks are removed. Marks are Unicode noncharacters, which no text should hold; a conversation that holds one is
dropped.

What an assistant says is known from `{% generation %}` blocks (as in transformers). In a template without them it is
found by rendering prefixes: what the turn adds to the conversation before it and the generation prompt. Text is cut
into spans at both ends of a turn, so the tokens before it are those that a server sends, and no token crosses an end of
a turn.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes, pass_context
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

OPEN, CLOSE, BREAK = "\ufdd0", "\ufdd1", "\ufdd2"
"""Marks for where an assistant begins and ends, and for breaking up a special token's characters inside a message."""
HELD = 0xFDD3
"""The first of sixteen marks, one for each hexadecimal digit: they replace a special token of one character."""
HELD_DIGITS = 6
MARKS = re.compile(r"[\ufdd0-\ufde2]")
HELD_PLACE = re.compile(rf"[\ufdd3-\ufde2]{{{HELD_DIGITS}}}")
SPECIALS_IN_CONTEXT = "_special_tokens"
"""The name under which a template's filters find the special tokens."""

GENERATION_TAG = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
ASSISTANT = "assistant"


@dataclass(frozen=True)
class Conversation:
    """Messages, each with at least `role` and `content`, and the tools they may call."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Any, ...] = ()

    @staticmethod
    def from_json(text: str | None) -> "Conversation | None":
        """Build it from what `datakit.readers.conversations` keeps of a record; None if there is nothing."""
        if not text:
            return None
        document = json.loads(text)
        return Conversation(tuple(document["messages"]), tuple(document.get("tools", ())))


@dataclass(frozen=True)
class Span:
    """A run of rendered text. `special`: it is exactly the characters of one special token. `counts`: the loss includes
    it.
    """

    text: str
    special: bool
    counts: bool


@dataclass(frozen=True)
class ChatTemplate:
    """A template and what it may name."""

    source: str
    bos_token: str = ""
    eos_token: str = ""

    def __post_init__(self) -> None:
        try:
            _environment().parse(self.source)
        except TemplateSyntaxError as error:
            raise ValueError(f"chat template, line {error.lineno}: {error.message}") from error

    @property
    def has_generation_blocks(self) -> bool:
        return GENERATION_TAG.search(self.source) is not None

    @cached_property
    def compiled(self) -> Template:
        return _environment().from_string(self.source)

    def render(self, conversation: Conversation, *, generation_prompt: bool, specials: Sequence[str] = ()) -> str:
        """Render the text, with assistants' turns between marks if the template has blocks. Raises:
        jinja2.TemplateError.

        `specials` stay broken up in what the template writes as JSON.
        """
        return self.compiled.render(
            messages=list(conversation.messages),
            tools=list(conversation.tools) or None,
            add_generation_prompt=generation_prompt,
            bos_token=self.bos_token,
            eos_token=self.eos_token,
            raise_exception=_raise,
            **{SPECIALS_IN_CONTEXT: tuple(specials)},
        )


def conversation_spans(
    template: ChatTemplate, conversation: Conversation, specials: Sequence[str], end_of_turn: str
) -> list[Span] | str:
    """Return the rendered conversation in spans, or why it has none.

    Reasons: `noncharacters`, `no_assistant`, `template_refuses` (its `raise_exception`, or an absent field),
    `template_not_by_prefix` and `mask_mismatch` (each assistant's message must be exactly one span of text with its
    content, closed by the end of turn).
    """
    broken = _breaking(conversation, specials)
    if broken is None:
        return "noncharacters"
    answers = [message for message in broken.messages if message["role"] == ASSISTANT]
    if not answers:
        return "no_assistant"
    try:
        text = template.render(broken, generation_prompt=False, specials=specials)
        if not template.has_generation_blocks:
            text = _marked_by_prefixes(template, broken, text, specials, end_of_turn)
    except (TemplateError, TypeError, KeyError) as error:
        return "template_not_by_prefix" if isinstance(error, _NotByPrefixError) else "template_refuses"
    turns = re.findall(f"{OPEN}(.*?){CLOSE}", text, re.DOTALL)
    if len(turns) != len(answers) or not all(map(_is_turn(end_of_turn), turns, answers)):
        return "mask_mismatch"
    return _spans(text, specials)


def _is_turn(end_of_turn: str) -> Callable[[str, Mapping[str, Any]], bool]:
    """Whether a marked stretch is the turn of a message: the only end of turn in it ends it, and it holds what was
    said.
    """

    def is_turn(turn: str, message: Mapping[str, Any]) -> bool:
        return turn.endswith(end_of_turn) and turn.count(end_of_turn) == 1 and message["content"].strip() in turn

    return is_turn


def _spans(text: str, specials: Sequence[str]) -> list[Span]:
    marks = "|".join(map(re.escape, [OPEN, CLOSE, *sorted(specials, key=len, reverse=True)]))
    counts, spans = False, []
    for part in re.split(f"({marks})", text):
        if part in (OPEN, CLOSE):
            counts = part == OPEN
        elif part:
            spans.append(Span(_whole(part), part in specials, counts))
    return spans


class _NotByPrefixError(TemplateError):
    """Rendering a conversation up to a turn does not give the beginning of rendering it with the turn."""


def _marked_by_prefixes(
    template: ChatTemplate, conversation: Conversation, text: str, specials: Sequence[str], end_of_turn: str
) -> str:
    """Return the rendered text with marks around what each assistant's turn adds, up to its end of turn."""
    pieces, done = [], 0
    for index, message in enumerate(conversation.messages):
        if message["role"] != ASSISTANT:
            continue
        before = Conversation(conversation.messages[:index], conversation.tools)
        upto = Conversation(conversation.messages[: index + 1], conversation.tools)
        prompt = template.render(before, generation_prompt=True, specials=specials)
        turn = template.render(upto, generation_prompt=False, specials=specials)
        if not turn.startswith(prompt) or not text.startswith(turn):
            raise _NotByPrefixError(f"message {index} changes what is rendered before it")
        end = turn.find(end_of_turn, len(prompt))
        if end < 0:
            raise _NotByPrefixError(f"message {index} is not closed by {end_of_turn!r}")
        end += len(end_of_turn)
        pieces += [text[done : len(prompt)], OPEN, text[len(prompt) : end], CLOSE]
        done = end
    return "".join([*pieces, text[done:]])


def _breaking(conversation: Conversation, specials: Sequence[str]) -> Conversation | None:
    """Return the conversation with a mark inside every special token's characters; None if it holds marks itself.

    Names of a message's own fields stay, because templates ask for them. Deeper names (arguments of a call) are text
    like any other.
    """
    has_mark = [False]

    def broken(text: str) -> str:
        has_mark[0] |= MARKS.search(text) is not None
        return _broken(text, specials)

    def of_message(message: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _each_text(item, broken) for name, item in message.items()}

    tools = tuple(_each_text(tool, broken) for tool in conversation.tools)
    with_marks = Conversation(tuple(map(of_message, conversation.messages)), tools)
    return None if has_mark[0] else with_marks


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Change every text in a JSON value, names included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_each_text(name, change): _each_text(item, change) for name, item in value.items()}
    return [_each_text(item, change) for item in value] if isinstance(value, list | tuple) else value


def _broken(text: str, specials: Sequence[str]) -> str:
    """Put a mark after the first character of every special token's characters.

    A special token of one character cannot be broken up: marks that encode which one it was replace it.
    """
    if not specials:
        return text
    return _beginnings(tuple(specials)).sub(lambda match: _held(match[0]) if match[0] in specials else match[0] + BREAK, text)


@lru_cache(maxsize=8)
def _beginnings(specials: tuple[str, ...]) -> re.Pattern[str]:
    """Yield the first character of every occurrence of a special token, overlapping ones included."""
    return re.compile(f"(?={'|'.join(map(re.escape, specials))}).", re.DOTALL)


def _held(character: str) -> str:
    return "".join(chr(HELD + int(digit, 16)) for digit in f"{ord(character):0{HELD_DIGITS}x}")


def _whole(text: str) -> str:
    """Return the text as it was before marks were put into it."""
    place = HELD_PLACE.sub(lambda match: chr(int("".join(f"{ord(mark) - HELD:x}" for mark in match[0]), 16)), text)
    return place.replace(BREAK, "")


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}`: its text between marks."""

    tags = {"generation"}  # noqa: RUF012 - the type that Jinja declares

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller: Callable[[], str]) -> str:
        return f"{OPEN}{caller()}{CLOSE}"


def _environment() -> ImmutableSandboxedEnvironment:
    """Configure Jinja as transformers does: blocks leave no line behind, JSON is not escaped for HTML."""
    extensions = [_Generation, "jinja2.ext.loopcontrols"]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _tojson
    return environment


@pass_context
def _tojson(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return the `tojson` filter of transformers, with the arguments that templates pass to it.

    Marks are removed before and put back after: `ensure_ascii` would write them as text, and escapes can form a special
    token.
    """
    plain = _each_text(value, _whole)
    written = json.dumps(plain, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return _broken(written, context[SPECIALS_IN_CONTEXT])


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
