"""Roles of parameters. Every weight field of a model declares one; an optimizer chooses its rule and its decay by role.

    w_up: NamedArray = field(metadata=MATRIX)

This module imports no JAX, so that optimizer configs can name roles.
"""

from collections.abc import Mapping
from typing import Literal

type Role = Literal["matrix", "head", "embedding", "norm"]
ROLES: tuple[Role, ...] = ("matrix", "head", "embedding", "norm")
KEY = "role"
"""Key of the role in a dataclass field's metadata."""

MATRIX: Mapping[str, Role] = {KEY: "matrix"}
"""A weight inside a block that is a matrix from or to the residual stream."""
HEAD: Mapping[str, Role] = {KEY: "head"}
"""The output matrix, where it is not the embedding."""
EMBEDDING: Mapping[str, Role] = {KEY: "embedding"}
NORM: Mapping[str, Role] = {KEY: "norm"}
"""The scale of a normalization."""
