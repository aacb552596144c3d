"""Hostile chat templates, rendered by the server's process within its bounds; hostile conversations through a sound one."""

import json
from pathlib import Path

from datakit.readers.conversations import conversation_record
from datakit.sources.record import Unreadable
from datakit.tokens.chat_template import ChatTemplate, Conversation, conversation_spans
from fuzz.run import Target
from serving.server.template_process import TemplateFaultError, TemplateProcess

SOUND = "{% for m in messages %}<|{{ m.role }}|>{% generation %}{{ m.content }}<|end|>{% endgeneration %}{% endfor %}"
MESSAGES = [{"role": "user", "content": "hi"}]
GIVEN = {"messages": MESSAGES, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}
TEMPLATES = [
    SOUND,
    "{% for m in messages %}{% if loop.first and m.role == 'system' %}{{ m.content | trim }}{% endif %}{{ m | tojson }}"
    "{% endfor %}",
    "{% macro f(x, n=2) %}{{ x * n }}{{ f(x) if n > 3 }}{% endmacro %}{{ f('ab') }}{{ range(5) | list | join(',') }}",
    "{% set ns = namespace(found=0) %}{% for i in range(99) %}{% for j in range(9) %}{% set ns.found = ns.found + i ** j %}"
    "{% endfor %}{% endfor %}{{ ns.found }}",
    "{{ '%10d' | format(3) }}{{ messages[0].content.ljust(20) }}{{ 'x'.replace('x', 'yy') * 9 }}{{ strftime_now('%Y') }}",
]  # fmt: skip
SPECIALS = ["<|user|>", "<|assistant|>", "<|end|>"]


def target() -> Target:
    process = TemplateProcess(seconds=0.5, memory_mib=256, most_characters=1 << 20)
    template = ChatTemplate(SOUND)
    chat = {"messages": [{"role": "user", "content": "hi <|end|>"}, {"role": "assistant", "content": "ho", "tool_calls": []}]}
    seeds = [b"t" + source.encode() for source in TEMPLATES] + [b"c" + json.dumps(chat).encode()] * 3
    seeds += [json.dumps(chat).encode()] * 3  # changed as values, and recognized by its brace

    def attempt(data: bytes, folder: Path) -> None:
        del folder
        if data[:1] in (b"c", b"{"):
            text = data[data[:1] == b"c" :].decode("utf-8", "replace")
            try:
                record = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"no conversation: {error}") from error
            messages = record.get("messages") if isinstance(record, dict) else record
            converted = conversation_record("it", messages, None)
            if not isinstance(converted, Unreadable):
                conversation = Conversation.from_json(converted.fields.get("conversation"))  # type: ignore[union-attr]
                if conversation is not None:
                    conversation_spans(template, conversation, SPECIALS, "<|end|>")
            return
        process.render(data[1:].decode("utf-8", "replace"), GIVEN)

    return Target("templates", seeds, attempt, (TemplateFaultError,), seconds=10.0)
