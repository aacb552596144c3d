"""Configs to JSON and back, strict in both directions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.config import from_jsonable, to_jsonable
from lineage.storage.digests import canonical_json


@dataclass(frozen=True)
class Leaf:
    """A nested config."""

    weights: Mapping[str, float]
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Tree:
    """A config with every supported shape."""

    name: str
    leaves: tuple[Leaf, ...]
    limit: int | None = None
    flag: bool = False
    path: str = field(default="", metadata={"identity": False})


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000)  # `low=50` is allowed where a float is
leaves = st.builds(Leaf, st.dictionaries(st.text(), numbers), st.sampled_from(["a", "b"]))
trees = st.builds(Tree, st.text(), st.lists(leaves).map(tuple), st.none() | st.integers(), st.booleans())


@given(trees)
def test_a_config_survives_json(tree: Tree) -> None:
    """Value and text: `50` that came back as `50.0` is equal, and another identity."""
    back = from_jsonable(Tree, json.loads(json.dumps(to_jsonable(tree))))
    assert back == tree
    assert canonical_json(to_jsonable(back)) == canonical_json(to_jsonable(tree))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limt": 3}, "no field 'limt'; Tree allows: flag, leaves, limit, name, path"),
        ({"name": 3}, "config.name is 3; it must be str"),
        ({"flag": 1}, "config.flag is 1; it must be bool"),
        ({"leaves": [{"weights": {}, "kind": "c"}]}, r"config.leaves\[0\].kind is 'c'; allowed: 'a', 'b'"),
    ],
)
def test_errors_name_the_field_the_value_and_what_is_allowed(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_jsonable(Tree, {"name": "n", "leaves": [], **change})


@dataclass(frozen=True)
class First:
    """The member that was there before there was a choice."""

    size: int
    later: int | None = field(default=None, metadata={"added_later": True})


@dataclass(frozen=True)
class Second:
    """A member with the fields of the first, and a tag."""

    size: int
    kind: Literal["second"] = "second"


@dataclass(frozen=True)
class Third:
    """A member of an alias inside the union."""

    size: int
    kind: Literal["third"] = "third"


type Inner = Second | Third


@dataclass(frozen=True)
class Choice:
    """A config with a sum type."""

    member: First | Inner | None


@dataclass(frozen=True)
class Twin:
    """The fields of the first, and no tag either."""

    size: int


@dataclass(frozen=True)
class Muddle:
    """A sum type that JSON cannot tell apart by tags; by fields it can tell a leaf from the other two."""

    member: First | Twin | Leaf


@pytest.mark.parametrize("member", [First(1), First(1, 2), Second(1), Third(1), None])
def test_members_of_a_sum_type_are_distinguished_by_their_tag(member: object) -> None:
    written = to_jsonable(Choice(member))
    assert from_jsonable(Choice, written) == Choice(member)


def test_a_field_that_came_later_is_written_only_where_it_says_something() -> None:
    assert to_jsonable(First(1)) == {"size": 1}
    assert to_jsonable(First(1, 2)) == {"size": 1, "later": 2}


def test_a_tag_that_is_unknown_or_missing_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"member.kind is 'x'; allowed: no kind \(First\), 'second' \(Second\), 'third'"):
        from_jsonable(Choice, {"member": {"kind": "x", "size": 1}})
    with pytest.raises(TypeError, match="of First, Twin two have the same fields and no 'kind'"):
        from_jsonable(Muddle, {"member": {"size": 1}})


def test_members_without_tags_are_distinguished_by_their_fields() -> None:
    for member in (Leaf({"x": 1.5}, "b"), First(1, 2)):
        assert from_jsonable(Muddle, to_jsonable(Muddle(member))) == Muddle(member)
    with pytest.raises(ValueError, match=r"member has the fields odd, which are those of none of First, Twin, Leaf"):
        from_jsonable(Muddle, {"member": {"odd": 1}})


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ValueError, match="lacks the field 'leaves'"):
        from_jsonable(Tree, {"name": "n"})


def test_runtime_fields_are_no_identity_and_odd_values_are_refused() -> None:
    assert "path" not in to_jsonable(Tree("n", (), path="/somewhere"))
    with pytest.raises(TypeError, match=r"config\.x is a set"):
        to_jsonable({"x": {1}})
