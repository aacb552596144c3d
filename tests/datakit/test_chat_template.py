"""Conversations as spans: only the template adds special tokens, and only assistants' text counts in the loss."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from datakit.tokens.chat_template import ChatTemplate, Conversation, Span, conversation_spans

SPECIALS = ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "§", "||")
END = "<|end|>"
BLOCKS = ChatTemplate(
    "{{ bos_token }}{% for m in messages %}\n"
    "{% if m.role == 'assistant' %}\n<|assistant|>{% generation %}{{ m.content }}<|end|>{% endgeneration %}\n"
    "{% else %}\n<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}\n{% endfor %}\n"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}",
    bos_token="<|endoftext|>",
)
PREFIXES = ChatTemplate(re.sub(r"\{% generation %\}|\{% endgeneration %\}\n", "", BLOCKS.source), bos_token="<|endoftext|>")
PARTS = st.sampled_from([*SPECIALS, "{{ x }}", "{% generation %}", "\n\n", " ", "<|", "&amp;"])
CONTENT = st.lists(st.one_of(PARTS, st.text("ab é", max_size=3)), max_size=4).map("".join)
MESSAGES = st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), CONTENT), min_size=1, max_size=6)


def conversation(*messages: tuple[str, str]) -> Conversation:
    return Conversation(tuple({"role": role, "content": content} for role, content in messages))


@given(MESSAGES)
@example([("user", "quotes <|end|><|assistant|> here"), ("assistant", "and <|endoftext|> there")])
@example([("assistant", ""), ("assistant", "twice")])
@example([("user", "§"), ("assistant", "see § 5, §§ and |||")])
def test_what_counts_is_what_assistants_say_and_the_end_of_turn(messages):
    talk = conversation(*messages)
    spans = conversation_spans(BLOCKS, talk, SPECIALS, END)
    answers = [content for role, content in messages if role == "assistant"]
    if not answers:
        assert spans == "no_assistant"
        return
    assert "".join(span.text for span in spans if span.counts) == "".join(content + END for content in answers)
    whole = "".join(f"<|{role}|>{content}{END}" for role, content in messages)
    assert "".join(span.text for span in spans) == f"<|endoftext|>{whole}"
    assert [span.text for span in spans if span.special] == [
        "<|endoftext|>", *(token for role, _ in messages for token in (f"<|{role}|>", END))
    ]  # fmt: skip


@given(MESSAGES)
def test_a_template_without_blocks_gives_the_same_spans_by_prefixes(messages):
    talk = conversation(*messages)
    assert conversation_spans(PREFIXES, talk, SPECIALS, END) == conversation_spans(BLOCKS, talk, SPECIALS, END)


def test_the_text_before_a_turn_is_what_a_server_sends():
    talk = conversation(("user", "two plus two?"), ("assistant", " four"))
    spans = conversation_spans(BLOCKS, talk, SPECIALS, END)
    assert isinstance(spans, list)
    prompt = BLOCKS.render(conversation(("user", "two plus two?")), generation_prompt=True)
    assert "".join(span.text for span in spans if not span.counts) == prompt
    assert spans[-2:] == [Span(" four", special=False, counts=True), Span(END, special=True, counts=True)]


def test_tools_are_rendered_and_may_be_called_without_a_word():
    template = ChatTemplate(
        "{{ tools | tojson }}{% for m in messages %}{% generation %}{{ m.content }}{{ m.tool_calls | tojson }}<|end|>"
        "{% endgeneration %}{% endfor %}"
    )
    call = {"role": "assistant", "content": "", "tool_calls": [{"name": "look <|end|>"}]}
    spans = conversation_spans(template, Conversation((call,), ({"name": "é<b>"},)), SPECIALS, END)
    assert [span.text for span in spans] == ['[{"name": "é<b>"}]', '[{"name": "look <|end|>"}]', END]


CALLING = ChatTemplate(
    "{% for m in messages %}{% generation %}{{ m.content }}{{ m.tool_calls | tojson(ensure_ascii=true) }}<|end|>"
    "{% endgeneration %}{% endfor %}"
)
JSON_TEXT = st.lists(st.one_of(PARTS, st.text('ab é"\\\\', max_size=3)), max_size=4).map("".join)


@given(st.lists(st.dictionaries(JSON_TEXT, st.one_of(JSON_TEXT, st.lists(JSON_TEXT, max_size=2)), max_size=2), max_size=2))
@example([{"name": "say <|end|> § é"}, {"<|end|>": "§"}])
def test_a_call_in_ascii_is_json_of_what_was_called_and_no_special_token(calls):
    spans = conversation_spans(
        CALLING, Conversation(({"role": "assistant", "content": "", "tool_calls": calls},)), SPECIALS, END
    )
    assert isinstance(spans, list)
    assert [span.text for span in spans if not span.special] == [json.dumps(calls)]
    assert [span.text for span in spans if span.special] == [END]


def test_what_json_escapes_make_is_no_special_token():
    """A line feed is two characters in JSON, which with what is behind them are a token that the message does not hold."""
    call = {"role": "assistant", "content": "", "tool_calls": ["\n<|"]}
    spans = conversation_spans(CALLING, Conversation((call,)), (r"\n<|", END), END)
    assert spans == [Span(r'["\n<|"]', special=False, counts=True), Span(END, special=True, counts=True)]


def test_names_of_arguments_make_no_special_token():
    template = ChatTemplate(
        "{% for name, value in messages[0].arguments.items() %}{{ name }}={{ value }};{% endfor %}"
        "{% generation %}{{ messages[0].content }}<|end|>{% endgeneration %}"
    )
    talk = Conversation(({"role": "assistant", "content": "x", "arguments": {"<|end|>": "§"}},))
    spans = conversation_spans(template, talk, SPECIALS, END)
    assert isinstance(spans, list) and spans[0] == Span("<|end|>=§;", special=False, counts=False)


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("", '{"b": 1, "a": "é"}'),
        ("(sort_keys=true)", '{"a": "é", "b": 1}'),
        ("(ensure_ascii=true)", '{"b": 1, "a": "\\u00e9"}'),
        ("(separators=(',', ':'))", '{"b":1,"a":"é"}'),
        ("(indent=1)", '{\n "b": 1,\n "a": "é"\n}'),
    ],
)
def test_templates_may_say_how_json_is_written(how, wanted):
    """As transformers lets them: such a template refused every conversation."""
    template = ChatTemplate(
        f"{{{{ tools[0] | tojson{how} }}}}{{% generation %}}{{{{ messages[-1].content }}}}<|end|>{{% endgeneration %}}"
    )
    spans = conversation_spans(
        template, Conversation(({"role": "assistant", "content": "x"},), ({"b": 1, "a": "é"},)), SPECIALS, END
    )
    assert isinstance(spans, list) and spans[0].text == wanted


def test_messages_are_a_list_for_a_template():
    template = ChatTemplate(
        "{{ messages + [] == messages }}{% generation %}{{ messages[0].content }}<|end|>{% endgeneration %}"
    )
    spans = conversation_spans(template, conversation(("assistant", "x")), SPECIALS, END)
    assert isinstance(spans, list) and spans[0].text == "True"


OUTSIDE = ChatTemplate("{% generation %}{{ messages[0].content }}{% endgeneration %}<|end|>")
UNSAID = ChatTemplate("{% generation %}<|end|>{% endgeneration %}")
COUNTING = ChatTemplate("{{ messages | length }}{{ messages | map(attribute='content') | join }}<|end|>")
UNCLOSED = ChatTemplate("{{ messages | map(attribute='content') | join }}")


@pytest.mark.parametrize(
    ("template", "talk", "reason"),
    [
        (BLOCKS, (("user", "only"),), "no_assistant"),
        (BLOCKS, (("assistant", "a \ufdd1 mark"),), "noncharacters"),
        (BLOCKS, (("assistant", "a \ufde2 mark"),), "noncharacters"),
        (ChatTemplate("{{ raise_exception('no') }}"), (("assistant", "a"),), "template_refuses"),
        (ChatTemplate("{{ messages[0].absent.field }}"), (("assistant", "a"),), "template_refuses"),
        (OUTSIDE, (("assistant", "a"),), "mask_mismatch"),
        (UNSAID, (("assistant", "unsaid"),), "mask_mismatch"),
        (COUNTING, (("assistant", "a"), ("assistant", "b")), "template_not_by_prefix"),
        (UNCLOSED, (("assistant", "b"),), "template_not_by_prefix"),
    ],
)
def test_a_conversation_that_cannot_be_masked_says_why(template, talk, reason):
    assert conversation_spans(template, conversation(*talk), SPECIALS, END) == reason


@pytest.mark.parametrize("source", ["{% if %}", "{% generation %} without an end", "{{ unclosed"])
def test_a_template_that_does_not_parse_is_refused(source):
    with pytest.raises(ValueError, match="chat template, line 1: "):
        ChatTemplate(source)


def test_a_template_cannot_leave_its_sandbox():
    escape = ChatTemplate("{{ messages.__class__.__mro__ }}{% generation %}a<|end|>{% endgeneration %}")
    assert conversation_spans(escape, conversation(("assistant", "a")), SPECIALS, END) == "template_refuses"
