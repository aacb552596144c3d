"""Chat templates: Jinja text beside a tokenizer, in Hugging Face's format.

A checkpoint that was not trained on conversations has no template; then the server refuses chat requests.
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
    """A template, its variables, and the token that ends a turn (the model's end token if None)."""

    source: str
    bos_token: str = ""
    eos_token: str = ""
    process: TemplateProcess = field(default_factory=TemplateProcess, compare=False, repr=False)
    """The limited process that renders the template, because a template is untrusted code."""

    def render(self, messages: list[Message], tokenizer: Tokenizer) -> list[int]:
        """Render a conversation up to the assistant's turn; returns token ids.

        Special tokens may come from the template only. A message with the characters of a special token is refused, because it
        could end its turn and speak for another role. Raises: RequestError, 400.
        """
        specials = [added.content for added in tokenizer.get_added_tokens_decoder().values() if added.special]
        for index, message in enumerate(messages):
            for special in specials:
                if special in message.content or special in message.role:
                    raise RequestError(400, f"messages.{index} has {special!r}; no special token is allowed", "messages")
        names = {"bos_token": self.bos_token, "eos_token": self.eos_token, "add_generation_prompt": True}
        given = names | {"messages": [message.model_dump() for message in messages]}
        try:
            text = self.process.render(self.source, given)
        except TemplateFaultError as error:
            raise RequestError(400, f"messages do not fit the chat template: {error}", "messages") from error
        return reading_specials(tokenizer).encode(text, add_special_tokens=False).ids


def find_chat_template(folder: Path) -> ChatTemplate | None:
    """Find the template beside a `tokenizer.json`: `chat_template.jinja`, or an entry of `tokenizer_config.json`."""
    file = folder / TEMPLATE_FILE
    source = file.read_text() if file.is_file() else _default(_config(folder).get("chat_template"))
    if source is None:
        return None
    return ChatTemplate(source, special_token(folder, "bos_token"), special_token(folder, "eos_token"))


def special_token(folder: Path, name: str) -> str:
    """Read a special token from `tokenizer_config.json`; empty if it has none."""
    entry = _config(folder).get(name)
    return entry["content"] if isinstance(entry, dict) else entry or ""


def _config(folder: Path) -> dict[str, Any]:
    file = folder / CONFIG_FILE
    return json.loads(file.read_text()) if file.is_file() else {}


def _default(templates: str | list[dict[str, str]] | None) -> str | None:
    """Of several templates return the one named `default`, as transformers does for requests without tools."""
    if not isinstance(templates, list):
        return templates
    return next((each["template"] for each in templates if each["name"] == "default"), None)


def reading_specials(tokenizer: Tokenizer) -> Tokenizer:
    """Copy a tokenizer so that it parses special tokens in text."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.encode_special_tokens = False
    return copy
