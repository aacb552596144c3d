"""Find personal data and secrets in a text, and put a fixed placeholder in the place of each.

The kinds and forms are those of published data sets: emails and public addresses as in FineWeb (datatrove's PIIFormatter)
and Dolma, version numbers left alone as in StarCoder, and keys by the prefixes that their issuers document. A form that
carries a check (a card's last digit, an IBAN's check digits, an address's range) counts only if the check agrees.

Time is linear in the text: every pattern has a bounded length, or stops at a character that only begins the next match.
Redacting twice changes nothing more: what may not stand before a match may not stand behind another one either, and emails
take all such characters around them. So no match opens the way for another one.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from datakit.readers.redacted_numbers import card_end, iban_end, phone_end
from datakit.sources.redaction import PATTERNS_VERSION, RedactedKind, Redaction

type Redact = Callable[[str], tuple[str, Mapping[RedactedKind, int]]]
"""From a text to the redacted text and the number of placeholders by kind."""

type Find = Callable[[str], Iterator[tuple[int, int]]]
"""Yields (start, end) of the matches in a text, ascending, none in another."""

WORD = "0-9A-Za-z_+"
"""Characters that join on to a match and so refuse it."""
_LOCAL_MARKS = frozenset("._%+-'")
_LATIN = "\u0250"
"""First character after the Latin letters: Chinese text before an address has no space, and is no part of it."""
_IMAGES = frozenset({"png", "jpg", "jpeg", "gif", "svg", "webp"})
_VERSION_PARTS = 3
"""Numbers of one digit among the four that make them a version or a section: 1.2.3.4, 8.2.4.44. One address in 4,000 is so."""
_RESERVED = frozenset({"example", "invalid", "test", "local", "localhost"})
"""Top-level names for documentation and local networks (RFC 2606, 6761, 6762)."""


def redactor(step: Redaction) -> Redact:
    """Return what redacts a text. Raises: ValueError if the step declares another version of the patterns."""
    if step.patterns_version != PATTERNS_VERSION:
        raise ValueError(
            f"{step.name}: patterns_version is {step.patterns_version!r}; this code has {PATTERNS_VERSION!r}. Another version "
            "is another recipe: declare it"
        )
    wanted = [(kind, find) for kind, finders in _finders().items() if kind in step.kinds for find in finders]

    def redact(text: str) -> tuple[str, Mapping[RedactedKind, int]]:
        counts: dict[RedactedKind, int] = {}
        for kind, find in wanted:
            pieces, done = list[str](), 0
            for start, end in find(text):
                pieces += (text[done:start], placeholder(kind))
                done = end
            if pieces:
                counts[kind] = counts.get(kind, 0) + len(pieces) // 2
                text = "".join([*pieces, text[done:]])
        return text, counts

    return redact


def placeholder(kind: RedactedKind) -> str:
    """Return what stands in the place of a match: `<IP_ADDRESS>`."""
    return f"<{kind.upper()}>"


def _finders() -> Mapping[RedactedKind, tuple[Find, ...]]:
    """Return what finds each kind, in the order in which they run.

    An email takes whole runs of characters, so it is first. Whether a number is an address or a version depends on the
    letters before it, so keys and IBANs are gone before addresses are looked for.
    """
    four, six = _ip_patterns()
    return MappingProxyType(
        {
            "email": (_emails(),),
            "secret": _secrets(),
            "iban": (_checked(rf"[A-Z](?<![{WORD}][A-Z])[A-Z][0-9]{{2}}(?: ?[0-9A-Z]){{11,30}}", iban_end),),
            "ip_address": (_checked(four, _four_end), _checked(six, _six_end)),
            "credit_card": (
                _checked(
                    rf"[2-6](?<![{WORD}.-][2-6])(?:[0-9]{{12,18}}|[0-9]{{3}}(?:[ -][0-9]{{4}}){{3}}"
                    rf"|[0-9]{{3}}[ -][0-9]{{6}}[ -][0-9]{{4,5}})(?![{WORD}]|[.-][0-9])",
                    card_end,
                ),
            ),
            "phone": (
                _checked(
                    rf"\+(?<![{WORD}.)\]]\+)[1-9][0-9]{{0,2}}[ .-]?(?:\([0-9]{{1,4}}\)[ .-]?)?[0-9]{{1,12}}"
                    rf"(?:[ ./-][0-9]{{2,8}}){{0,5}}(?![{WORD}]|\.[0-9])",
                    phone_end,
                ),
            ),
        }
    )


def _checked(pattern: str, end_of: Callable[[re.Match[str]], int | None]) -> Find:
    """Return a search for a pattern whose matches count if `end_of` gives where they end; else the search goes on one
    character later.
    """
    compiled = re.compile(pattern)

    def find(text: str) -> Iterator[tuple[int, int]]:
        at = 0
        while match := compiled.search(text, at):
            end = end_of(match)
            if end is None:
                at = match.start() + 1
            else:
                yield match.start(), end
                at = end

    return find


def _emails() -> Find:
    """Search for `@` and a domain, then go left: a pattern that begins with the name tries every character of a long word."""
    letters = "A-Za-z\u00c0-\u024f"
    domain = re.compile(rf"@((?:[0-9{letters}-]{{1,63}}\.){{1,8}}(?:xn--[a-z0-9-]{{2,59}}|[{letters}]{{2,24}}))")

    def find(text: str) -> Iterator[tuple[int, int]]:
        done = 0
        for match in domain.finditer(text):
            start = match.start()
            while start > done and _is_local(text[start - 1]):
                start -= 1
            while text[start] in _LOCAL_MARKS:  # Ends at the `@`.
                start += 1
            if start < match.start() and _is_personal(text[start : match.start()], match[1].lower()):
                yield start, match.end()
                done = match.end()

    return find


def _is_local(character: str) -> bool:
    return character in _LOCAL_MARKS or (character < _LATIN and character.isalnum())


def _is_personal(local: str, domain: str) -> bool:
    """Return False for `icon@2x.png`, `git@github.com`, and names that are reserved for documentation."""
    labels = domain.split(".")
    is_example = labels[-2] == "example" and labels[-1] in ("com", "net", "org")
    return not (labels[-1] in _IMAGES or labels[-1] in _RESERVED or is_example or local == "git")


def _ip_patterns() -> tuple[str, str]:
    """Return patterns of IPv4 and of IPv6. The latter begin with two groups, the first of global unicast, and
    end with one: neither `dead::beef` nor a network, `2001:658::`.
    """
    four = rf"[0-9](?<![{WORD}.][0-9])[0-9]{{0,2}}(?:\.[0-9]{{1,3}}){{3}}(?![{WORD}]|\.[0-9])"
    hexes = "[0-9A-Fa-f]{1,4}"
    six = (
        rf"[23](?<![{WORD}.:][23])[0-9A-Fa-f]{{3}}(?::{hexes}){{1,7}}(?:::{hexes}(?::{hexes}){{0,5}})?"
        rf"(?![{WORD}]|[:.][0-9A-Fa-f])"
    )
    return four, six


def _four_end(match: re.Match[str]) -> int | None:
    start, end = match.span()
    one_digit = [part for part in match[0].split(".") if len(part) == 1]
    if len(one_digit) >= _VERSION_PARTS or _is_numbering(match.string[max(0, start - 16) : start]):
        return None
    return end if _is_public(match[0]) else None


def _is_numbering(before: str) -> bool:
    """Whether what stands before four numbers says that they count something: `Chrome/`, `==`, `version `, `Section `."""
    said = r"""(?i:\b(?:versions?|release|build|ver|v|section|oid)|identifier)[ \t]?[:=.(]{0,2}[ \t]?["']?"""
    return re.search(rf"(?:[A-Za-z>]/|[=<>~!^]=|{said})\Z", before) is not None


def _six_end(match: re.Match[str]) -> int | None:
    return match.end() if _is_public(match[0]) else None


def _is_public(address: str) -> bool:
    """Whether an address is one that the whole internet can reach: not loopback, private, link-local, documentation.

    The ranges are those of Python's `ipaddress`; releases differ in a few that IANA reserves for protocols.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return parsed.is_global and not parsed.is_multicast


def _secrets() -> tuple[Find, ...]:
    """Return a search for each form of key, and for blocks of private keys. A text without the prefix is not searched."""
    forms = {
        "AKIA": "[0-9A-Z]{16}",
        "ASIA": "[0-9A-Z]{16}",
        "AIza": "[0-9A-Za-z_-]{35}",
        "ghp_": "[0-9A-Za-z]{36}",
        "gho_": "[0-9A-Za-z]{36}",
        "ghu_": "[0-9A-Za-z]{36}",
        "ghs_": "[0-9A-Za-z]{36}",
        "ghr_": "[0-9A-Za-z]{36}",
        "github_pat_": "[0-9A-Za-z_]{82}",
        "glpat-": "[0-9A-Za-z_-]{20}",
        "hf_": "[A-Za-z]{34}",
        "npm_": "[0-9A-Za-z]{36}",
        "pypi-AgE": "[0-9A-Za-z_-]{50,250}",
        "sk-ant-": "[0-9A-Za-z_-]{40,200}",
        "sk-proj-": "[0-9A-Za-z_-]{40,200}",
        "sk_live_": "[0-9A-Za-z]{24,99}",
        "xoxb-": "[0-9A-Za-z-]{20,90}",
        "xoxp-": "[0-9A-Za-z-]{20,90}",
    }
    tokens = [_with_prefix(prefix, rf"(?<![{WORD}]){prefix}{rest}(?![{WORD}])") for prefix, rest in forms.items()]
    # No five hyphens stand in a key, so each search ends before the next block. A program that names both marks has no key.
    label = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    lines = r"(?:[^-]|-(?!----)){60,}+"
    block = f"-----BEGIN {label}{lines}-----END {label}"
    return (*tokens, _with_prefix("-----BEGIN ", block))


def _with_prefix(prefix: str, pattern: str) -> Find:
    compiled = re.compile(pattern)

    def find(text: str) -> Iterator[tuple[int, int]]:
        return (match.span() for match in compiled.finditer(text)) if prefix in text else iter(())

    return find
