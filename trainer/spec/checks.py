"""Checks for config dataclasses. An error is one sentence that names the field, its value and what is allowed."""


def require(condition: bool, field: str, value: object, allowed: str) -> None:
    """Raises: ValueError unless the condition holds."""
    if not condition:
        raise ValueError(f"{field} is {value!r}; it must be {allowed}")


def require_multiple(field: str, value: int, of: int) -> None:
    """Raises: ValueError unless `value` is a multiple of `of`."""
    require(value % of == 0, field, value, f"a multiple of {of}")
