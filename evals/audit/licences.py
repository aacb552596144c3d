"""Licences as SPDX expressions: which licences a text names, or that it names none that can be known."""

import re
from functools import cache

from license_expression import ExpressionError, Licensing, get_spdx_licensing


def licences_in(stated: object) -> frozenset[str] | None:
    """Return the SPDX ids in an expression, or None for anything else: free text, `various`, a licence that is unverified.

    >>> sorted(licences_in("mit OR (GPL-2.0-only WITH Classpath-exception-2.0)"))
    ['Classpath-exception-2.0', 'GPL-2.0-only', 'MIT']
    >>> licences_in("various") is None
    True
    """
    if not isinstance(stated, str) or not stated.strip():
        return None
    try:
        parsed = _spdx().parse(stated, validate=True)
    except ExpressionError:
        return None
    keys = frozenset(_spdx().license_keys(parsed))
    words = set(re.split(r"[\s()]+", stated.casefold()))
    return keys if all(key.casefold() in words for key in keys) else None  # the package takes `GPL` for one of its versions


@cache
def _spdx() -> Licensing:
    """SPDX's list, as the package carries it. Cached: reading it takes 0.3 s."""
    return get_spdx_licensing()
