"""Chat templates of others that would take all time or memory are refused before the data engine compiles them."""

import pytest

from datakit.tokens.chat_template import ChatTemplate
from datakit.tokens.template_trial import refuse_overrun

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
DOUBLING = "{% set ns = namespace(x='x') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ 'a' * 10 ** 10 }}", "more than 1,024 MiB"),
        ("{{ '%09999999999d' % 1 }}", "more than 1,024 MiB"),
        ("{{ 'x'.ljust(900000000000) }}", "more than 1,024 MiB"),
        (DOUBLING, "took more than"),
        (
            "{% for m in messages %}{% for i in range(9999) %}{{ 'x' * 1000 }}{% endfor %}{% endfor %}",
            "more than 8,388,608 char",
        ),
        ("{{ 10 ** (10 ** 9) }}", "more than 1 s of processor time"),
        (LOOPS, "more than 1 s of processor time"),
    ],
)
def test_a_template_that_exceeds_a_limit_is_refused_by_name(source: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"the chat template is refused: for a conversation of five messages .*{why}"):
        refuse_overrun(ChatTemplate(source), seconds=1)


@pytest.mark.parametrize("source", [PLAIN, "{{ raise_exception('no system role') }}", "{{ messages[7].role }}", "{{ 1 / 0 }}"])
def test_a_template_that_refuses_a_conversation_is_not_refused(source: str) -> None:
    refuse_overrun(ChatTemplate(source))


def test_a_template_is_tried_once() -> None:
    refuse_overrun(ChatTemplate(PLAIN))
    began = refuse_overrun.cache_info().misses
    refuse_overrun(ChatTemplate(PLAIN))
    assert refuse_overrun.cache_info().misses == began
