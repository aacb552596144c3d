"""Conversations in a chat format, and a run whose loss counts only the assistant's turns (docs/recipes/train_on_chat.md)."""

from dataclasses import replace

from datakit.tokens.formats import Chat
from datakit.tokens.tokenizer import END_OF_TEXT
from recipes.records.data import Corpus, Scope, decontamination
from recipes.records.run import Evaluation, Run
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.smoke import smoke_spec
from recipes.study import Study
from recipes.suites import main_suite
from trainer.spec.config import RunSpec

CHAT_TEMPLATE = """\
{% for message in messages %}
{% if message.role == 'assistant' %}
<|assistant|>{% generation %}{{ message.content }}<|end|>{% endgeneration %}
{% elif message.role == 'user' %}
<|user|>{{ message.content }}<|end|>{% else %}{{ raise_exception('no such role: ' ~ message.role) }}{% endif %}
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}
"""


def study() -> Study:
    return Study("What does a tiny model learn to answer?", runs=(chat,))


def chat_tokens() -> Tokens:
    scope = Scope("chat", ("chatterbot",))
    corpus = Corpus("chat", scope, decontamination("chat", (main_suite(),), scope.sources))
    tokenizer = TrainedTokenizer(
        "chat1k", vocab_size=1024, special_tokens=(END_OF_TEXT, "<|user|>", "<|assistant|>", "<|end|>")
    )
    return Tokens("chat-1k", corpus, tokenizer, Chat(CHAT_TEMPLATE, end_of_turn="<|end|>"))


def chat_spec(vocab_size: int) -> RunSpec:
    """A model of .2 M parameters."""
    base = smoke_spec(vocab_size)
    model = replace(base.model, hidden_dim=64, intermediate_dim=176, num_layers=2, num_heads=4, num_kv_heads=2, max_seq_len=128)
    return replace(base, name="chat", model=model, seq_len=128, num_steps=200, save_every_steps=100)


def chat() -> Run:
    tokens = chat_tokens()
    return Run(chat_spec(tokens.vocab_size), Mix("chat", tokens), Evaluation((main_suite(),)))
