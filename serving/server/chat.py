"""Chat templates: the Jinja text that a tokenizer may bring, in Hugging Face's form.

A checkpoint that was not trained on conversations has none, and the server says so instead of inventing one.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from serving.refusals import RequestError
from serving.server.protocol import Message
from serving.server.template_process import TemplateFaultError, TemplateProcess

TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"


@dataclass(frozen=True)
class ChatTemplate:
    """A template, what it may name, and the token that ends a turn (the model's own end token otherwise)."""

    source: str
    bos_token: str = ""
    eos_token: str = ""
    process: TemplateProcess = field(default_factory=TemplateProcess, compare=False, repr=False)
    """What renders it: a template is a stranger's code, so it has bounds."""

    def render(self, messages: list[Message], tokenizer: Tokenizer) -> list[int]:
        """Token ids of a conversation up to where the assistant speaks.

        Special tokens are read from the template's text only: a message that holds one's characters is refused, as it would
        end its turn and speak as somebody else. Raises: RequestError, 400.
        """
        specials = [added.content for added in tokenizer.get_added_tokens_decoder().values() if added.special]
        for index, message in enumerate(messages):
            for special in specials:
                if special in message.content or special in message.role:
                    raise RequestError(400, f"messages.{index} holds {special!r}; no special token is allowed", "messages")
        names = {"bos_token": self.bos_token, "eos_token": self.eos_token, "add_generation_prompt": True}
        given = names | {"messages": [message.model_dump() for message in messages]}
        try:
            text = self.process.render(self.source, given)
        except TemplateFaultError as error:
            raise RequestError(400, f"messages do not fit the chat template: {error}", "messages") from error
        return reading_specials(tokenizer).encode(text, add_special_tokens=False).ids


def find_chat_template(folder: Path) -> ChatTemplate | None:
    """The template beside a `tokenizer.json`: `chat_template.jinja`, or an entry of `tokenizer_config.json`."""
    file = folder / TEMPLATE_FILE
    source = file.read_text() if file.is_file() else _default(_config(folder).get("chat_template"))
    if source is None:
        return None
    return ChatTemplate(source, special_token(folder, "bos_token"), special_token(folder, "eos_token"))


def special_token(folder: Path, name: str) -> str:
    """A token as `tokenizer_config.json` names it; empty where it names none."""
    entry = _config(folder).get(name)
    return entry["content"] if isinstance(entry, dict) else entry or ""


def _config(folder: Path) -> dict[str, Any]:
    file = folder / CONFIG_FILE
    return json.loads(file.read_text()) if file.is_file() else {}


def _default(templates: str | list[dict[str, str]] | None) -> str | None:
    """Of several templates the one named `default`, as transformers takes it where a request wants no tools."""
    if not isinstance(templates, list):
        return templates
    return next((each["template"] for each in templates if each["name"] == "default"), None)


def reading_specials(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that reads special tokens out of text."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.encode_special_tokens = False
    return copy
