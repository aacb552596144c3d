"""Licences as SPDX expressions. What is no expression of known ids becomes a reference of its own, never a guess."""

import re
from functools import cache

from license_expression import ExpressionError, ExpressionParseError, Licensing, get_spdx_licensing

from standards.ancestry import UNKNOWN_LICENCE


@cache
def _licensing() -> Licensing:
    return get_spdx_licensing()


def is_expression(text: str) -> bool:
    """Whether a text is an SPDX expression of ids that SPDX knows.

    >>> is_expression("Apache-2.0 OR MIT"), is_expression("public domain")
    (True, False)
    """
    try:
        return not _licensing().validate(text, strict=True).errors
    except (ExpressionError, ExpressionParseError, AttributeError):  # 30.4.4 asks an error without a token for its token
        return False


def expression(text: str) -> str:
    """Return a text as an SPDX expression: itself, or a `LicenseRef-` of its words."""
    if text == UNKNOWN_LICENCE or is_expression(text):
        return text
    return "LicenseRef-" + (re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-") or "unnamed")
