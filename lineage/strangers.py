"""What strangers wrote (model files, job files, manifests) is read by code that may fail anywhere; the error names the file."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lineage.storage.files import RootGoneError

UNNAMED = (UnicodeError, json.JSONDecodeError)
"""ValueErrors that do not say what was read."""
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Turn any error of the block into a ValueError that names `what`; a ValueError that says more passes as it is.

    For the reading of one thing only: an error of our own would be blamed on what was read. Its cause is kept.
    """
    try:
        yield
    except UNNAMED as error:
        raise ValueError(f"{what} cannot be read: {error}") from error
    except (ValueError, OSError, RootGoneError):
        raise
    except Exception as error:
        raise ValueError(f"{what} cannot be read: {type(error).__name__}: {error}") from error


def json_object(text: str, what: str) -> dict[str, Any]:
    """Return a JSON object whose texts are whole Unicode. Raises: ValueError naming `what`."""
    with naming(what):
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{what} is not JSON: {error}") from error
        text.encode()  # half of a surrogate pair is no name of a file
        if "\\u" in text and _HALF.search(text):  # an escape may be half of one, too
            json.dumps(record, ensure_ascii=False).encode()
    if not isinstance(record, dict):
        raise ValueError(f"{what} holds {str(record)[:80]}; a JSON object is allowed")
    return record
