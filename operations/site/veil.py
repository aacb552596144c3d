"""What the site must not show: people, machines, paths, private addresses, tokens, and text that its licence does not allow.

Names of people and machines come from the records, so a name is found anywhere in a text. Patterns find the rest. The veil
hides too much rather than too little.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from lineage.artifact.made_by import UNKNOWN
from operations.secrets import without_secrets

HIDDEN_PERSON, HIDDEN_PATH, HIDDEN_ADDRESS = "[name hidden]", "[path hidden]", "[address hidden]"
NO_NAMES = frozenset({"", UNKNOWN, "localhost"})
OPEN_LICENCES = (
    *("apache-2.0", "mit", "mit-0", "bsd", "isc", "zlib", "unlicense", "psf-2.0", "mpl-2.0", "cc0", "cc-by", "odc-by", "pddl"),
    *("gpl", "lgpl", "agpl", "gfdl", "artistic", "public domain"),
)
"""Starts of the names of licences under which excerpts may be shown."""

_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,15}://[^\s\"'<>|]+")
_PATH = re.compile(
    r"(?<![\w/.:\]~-])(?:~?/[\w.@+~-]+(?:/[\w.@+~-]*)+|~/[\w.@+~-]+|/(?:root|home|tmp|work|mnt|data)\b)|\b[A-Za-z]:\\[^\s\"']+"
)
_MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_HOST = re.compile(
    r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\b(?:[a-z0-9-]+\.)+(?:internal|local|localdomain|lan|corp|svc)\b(?::\d+)?"
    r"|\blocalhost(?::\d+)?\b|\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(r"password|passwd|secret|api_?key|access_?key|authorization|credential|(?:^|_)token$", re.IGNORECASE)


def veil_of(names: Iterable[str]) -> Callable[[str], str]:
    """Return the function that hides what must not be shown; `names` are those of people and machines."""
    ordered = sorted({name.strip() for name in names} - NO_NAMES, key=lambda name: (-len(name), name))
    people = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in ordered), re.IGNORECASE) if ordered else None

    @cache  # pages repeat most texts: 2,000 pages call this 220,000 times
    def veiled(text: str) -> str:
        text = without_secrets(text)
        text = _URL.sub(lambda match: _public(match[0]), text)
        for pattern, shown in ((_MAIL, HIDDEN_PERSON), (_HOST, HIDDEN_ADDRESS), (_PATH, HIDDEN_PATH)):
            text = pattern.sub(shown, text)
        return text if people is None else people.sub(HIDDEN_PERSON, text)

    return veiled


def is_secret_name(name: str) -> bool:
    """Whether a field's name says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def _public(url: str) -> str:
    """Return a public web address without query and fragment, which may hold a token; else a mark."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return HIDDEN_ADDRESS
    private = parts.scheme.lower() not in ("http", "https") or "@" in parts.netloc or "." not in host or _is_number(host)
    if private or _HOST.search(host):
        return HIDDEN_ADDRESS
    return f"{parts.scheme}://{host}{parts.path}"


def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def kept_back(source: Mapping[str, object]) -> str:
    """Return why the text of a source must not be shown, or an empty text. `source` is what its raw artifact declares."""
    licence, name = source.get("licence"), str(source.get("name"))
    if not isinstance(licence, str) or not licence.strip():
        return f"the licence of {name} is not verified"
    if not licence.lower().startswith(OPEN_LICENCES):
        return f"the licence of {name} ({licence}) is not one that allows excerpts"
    if source.get("trainable") is False or source.get("domain") == "benchmark":
        return f"{name} has items of benchmarks, which must not leak into training text"
    return ""
