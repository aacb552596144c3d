"""Check names that come from storage before they become paths.

A manifest, a shard record or a listing may come from somebody else's bucket. `..`, an absolute path or an odd character in
one of its names would let it read or write files outside the folder it belongs to (a manifest whose file was called
`/home/ada/.bashrc` replaced that file). `check_relative` refuses such names where records are read, and again where a
local root or a download turns a name into a path.
"""

PART_BYTES = 255
"""Longest file name that Linux file systems accept."""


def check_relative(name: object, what: str) -> str:
    """Return a relative path with `/` between its parts, unchanged.

    Raises: ValueError naming `what` for a path that is empty, absolute, has an empty part, `.` or `..`, a backslash, a
    control character, a character that UTF-8 cannot encode, or a part longer than a file name may be.

    >>> check_relative("data/part-00000.parquet", "file")
    'data/part-00000.parquet'
    >>> check_relative("data/../../.bashrc", "file")
    Traceback (most recent call last):
    ValueError: file is 'data/../../.bashrc': '..' is not allowed; give a relative path inside the folder
    """
    problem = _problem(name) if isinstance(name, str) else f"it must be text, not {type(name).__name__}"
    if problem:
        raise ValueError(f"{what} is {name!r}: {problem}; give a relative path inside the folder")
    assert isinstance(name, str)
    return name


def check_part(name: object, what: str) -> str:
    """Return one file or folder name, unchanged. Raises: ValueError as `check_relative`, and for a name with `/`."""
    if "/" in check_relative(name, what):
        raise ValueError(f"{what} is {name!r}: '/' is not allowed; give one name")
    assert isinstance(name, str)
    return name


def _problem(name: str) -> str | None:
    """What makes a path unsafe, or None."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "it holds a character that UTF-8 cannot encode"
    if any(byte < 32 or byte == 127 for byte in encoded) or "\\" in name:
        return "control characters and backslashes are not allowed"
    if name.startswith("/"):
        return "an absolute path is not allowed"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return f"{part!r} is not allowed" if part else "an empty part is not allowed"
        if len(part.encode()) > PART_BYTES:
            return f"a part is longer than {PART_BYTES} bytes"
    return None
