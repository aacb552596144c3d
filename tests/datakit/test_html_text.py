"""HTML to text: what a reader sees, in order, and nothing else."""

import html

from hypothesis import given
from hypothesis import strategies as st

from datakit.readers.html_text import html_to_text

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=12)


def test_blocks_stand_on_their_own_lines() -> None:
    assert html_to_text("<h1>A</h1><p>b <b>c</b>\n d</p><ul><li>e<li>f</ul>") == "A\n\nb c d\n\ne\nf"


def test_preformatted_text_is_kept_as_it_is() -> None:
    assert html_to_text("<p>x</p><pre>def f():\n\n    return  1</pre>") == "x\n\ndef f():\n\n    return  1"


def test_what_nobody_reads_is_dropped() -> None:
    page = (
        "<head><title>t</title></head><nav>menu <a>home</a></nav><script>if (a < b) x()</script><style>p {}</style><p>text</p>"
    )
    assert html_to_text(page) == "text"


def test_a_head_without_its_end_tag_does_not_swallow_the_page() -> None:
    assert html_to_text("<html><head><title>t</title><meta charset=utf-8><body><p>text</p>") == "text"


def test_a_stray_end_tag_opens_no_dropped_part() -> None:
    assert html_to_text("<nav>menu</script> more</nav></style><p>text</p>") == "text"


def test_an_unclosed_part_ends_with_the_one_around_it() -> None:
    assert html_to_text("<nav><svg><path></nav><p>text</p>") == "text"


def test_nonbreaking_spaces_indent_code() -> None:
    assert html_to_text("<p>def f():<br>\n&nbsp;&nbsp;&nbsp;&nbsp;return&nbsp;1</p>") == "def f():\n    return 1"


def test_entities_are_characters() -> None:
    assert html_to_text("<p>a &lt; b &amp;&amp; c &#233; &unknown;</p>") == "a < b && c é &unknown;"


def test_broken_markup_is_text_not_an_error() -> None:
    for page in ("", "<", "<p", "</", "<p>a</div></p>", "<!-- never closed", "<pre><pre>x", "<![CDATA[x", "&#xFFFFFFFF;"):
        assert isinstance(html_to_text(page), str)


@given(st.lists(st.lists(WORDS, min_size=1, max_size=6), min_size=1, max_size=6))
def test_every_word_survives_in_order(paragraphs: list[list[str]]) -> None:
    page = "<body>" + "".join(f"<p>{html.escape(' '.join(words))}</p>\n" for words in paragraphs) + "</body>"
    assert html_to_text(page) == "\n\n".join(" ".join(words) for words in paragraphs)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\0\xa0"), max_size=80))
def test_text_in_pre_comes_back(text: str) -> None:
    kept = "\n".join(line.rstrip() for line in text.split("\n"))
    while "\n\n\n" in kept:
        kept = kept.replace("\n\n\n", "\n\n")
    assert html_to_text(f"<pre>{html.escape(text)}</pre>") == kept.strip()
