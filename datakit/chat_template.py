"""A conversation through a chat template: text in spans that say what is a special token and what an assistant says.

Special tokens come from the template's own text alone. The characters of one inside a message stay text: before rendering, a
mark is put into each such place, so that nothing in a message can be taken for a token of the template, and the marks go again
afterwards. Marks are Unicode noncharacters, which no text should hold; a conversation that does is dropped.

What an assistant says is known from `{% generation %}` blocks (the form of transformers) or, in a template without them, from
rendering prefixes: what the turn adds to the conversation before it and the generation prompt. Text is cut into spans at both
ends of a turn, so the tokens before it are those that a server sends, and no token lies on both sides.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes, pass_context
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

OPEN, CLOSE, BREAK = "\ufdd0", "\ufdd1", "\ufdd2"
"""Where an assistant begins and ends, and what breaks a special token's characters inside a message."""
STAND_INS = tuple(chr(code) for code in range(0xFDD3, 0xFDF0))
"""For special tokens of one character, which cannot be broken."""
_BEYOND_ASCII = re.compile(f"[^\x00-\x7e{OPEN}-{STAND_INS[-1]}]")

GENERATION_TAG = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
ASSISTANT = "assistant"


@dataclass(frozen=True)
class Conversation:
    """Messages, each with at least `role` and `content`, and the tools they may call."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Any, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    """What stands in its texts for another character."""

    @staticmethod
    def from_json(text: str | None) -> "Conversation | None":
        """From what `datakit.conversations` keeps of a record; None where there is nothing."""
        if not text:
            return None
        whole = json.loads(text)
        return Conversation(tuple(whole["messages"]), tuple(whole.get("tools", ())))


@dataclass(frozen=True)
class Span:
    """A run of rendered text: `special` is exactly one special token's characters, `counts` is what the loss looks at."""

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

    def render(self, conversation: Conversation, *, generation_prompt: bool) -> str:
        """The text, assistants' turns between marks where the template has blocks. Raises: jinja2.TemplateError."""
        return self.compiled.render(
            messages=list(conversation.messages),
            tools=list(conversation.tools) or None,
            add_generation_prompt=generation_prompt,
            bos_token=self.bos_token,
            eos_token=self.eos_token,
            raise_exception=_raise,
            _stand_ins=conversation.stand_ins,
        )


def conversation_spans(
    template: ChatTemplate, conversation: Conversation, specials: Sequence[str], end_of_turn: str
) -> list[Span] | str:
    """The rendered conversation in spans, or why it has none.

    Reasons: `noncharacters`, `no_assistant`, `template_refuses` (its `raise_exception`, or a field that is not there),
    `template_not_by_prefix` and `mask_mismatch` (not one span of text an assistant's message, its content in it, closed by
    the end of turn).
    """
    broken = _breaking(conversation, specials)
    if broken is None:
        return "noncharacters"
    said = [message for message in broken.messages if message["role"] == ASSISTANT]
    if not said:
        return "no_assistant"
    try:
        text = template.render(broken, generation_prompt=False)
        if not template.has_generation_blocks:
            text = _marked_by_prefixes(template, broken, text, end_of_turn)
    except (TemplateError, TypeError, KeyError) as error:
        return "template_not_by_prefix" if isinstance(error, _NotByPrefixError) else "template_refuses"
    turns = re.findall(f"{OPEN}(.*?){CLOSE}", text, re.DOTALL)
    if len(turns) != len(said) or not all(map(_is_turn(end_of_turn), turns, said)):
        return "mask_mismatch"
    return _spans(text, specials, broken.stand_ins)


def _is_turn(end_of_turn: str) -> Callable[[str, Mapping[str, Any]], bool]:
    """Whether a marked stretch is the turn of a message: ended by the one end of turn in it, and holding what was said."""

    def is_turn(turn: str, message: Mapping[str, Any]) -> bool:
        return turn.endswith(end_of_turn) and turn.count(end_of_turn) == 1 and message["content"].strip() in turn

    return is_turn


def _spans(text: str, specials: Sequence[str], stand_ins: Mapping[str, str]) -> list[Span]:
    own = str.maketrans({BREAK: None, **stand_ins})
    marks = "|".join(map(re.escape, [OPEN, CLOSE, *sorted(specials, key=len, reverse=True)]))
    counts, spans = False, []
    for part in re.split(f"({marks})", text):
        if part in (OPEN, CLOSE):
            counts = part == OPEN
        elif part:
            spans.append(Span(part.translate(own), part in specials, counts))
    return spans


class _NotByPrefixError(TemplateError):
    """Rendering a conversation up to a turn does not give the beginning of rendering it with the turn."""


def _marked_by_prefixes(template: ChatTemplate, conversation: Conversation, text: str, end_of_turn: str) -> str:
    """The rendered text with marks around what each assistant's turn adds, up to its end of turn."""
    pieces, done = [], 0
    for index, message in enumerate(conversation.messages):
        if message["role"] != ASSISTANT:
            continue
        before = replace(conversation, messages=conversation.messages[:index])
        upto = replace(conversation, messages=conversation.messages[: index + 1])
        prompt = template.render(before, generation_prompt=True)
        turn = template.render(upto, generation_prompt=False)
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
    """The conversation with a mark inside every special token's characters; None where it holds marks itself.

    Names of a message's own fields stay, for templates ask for them; deeper ones (arguments of a call) are text like any.
    Raises: ValueError for more special tokens of one character than there are marks.
    """
    short = [special for special in specials if len(special) == 1]
    if len(short) > len(STAND_INS):
        raise ValueError(f"{len(short)} special tokens have one character; {len(STAND_INS)} are allowed: {''.join(short)}")
    stand_ins = dict(zip(STAND_INS, short, strict=False))
    hidden = str.maketrans({special: mark for mark, special in stand_ins.items()})
    found = [False]

    def broken(value: Any) -> Any:
        if isinstance(value, str):
            found[0] |= any(mark in value for mark in (OPEN, CLOSE, BREAK, *stand_ins))
            for special in specials:
                value = value.replace(special, special[0] + BREAK + special[1:]) if len(special) > 1 else value
            return value.translate(hidden) if stand_ins else value
        if isinstance(value, Mapping):
            return {broken(name): broken(item) for name, item in value.items()}
        return [broken(item) for item in value] if isinstance(value, list | tuple) else value

    messages = tuple({name: broken(item) for name, item in message.items()} for message in conversation.messages)
    made = Conversation(messages, tuple(map(broken, conversation.tools)), stand_ins)
    return None if found[0] else made


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
    """As transformers renders: blocks leave no line behind, JSON is not escaped for HTML."""
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
    """The filter of transformers, with what templates pass to it. Marks are not escaped, which would make text of them."""
    written = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    if not ensure_ascii:
        return written
    own = str.maketrans(
        {mark: character for mark, character in context.get("_stand_ins", {}).items() if not character.isascii()}
    )
    return _BEYOND_ASCII.sub(lambda found: json.dumps(found.group())[1:-1], written.translate(own))


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
