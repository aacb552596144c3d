"""Roles of parameters. Every weight field of a model declares one; an optimizer chooses its rule and its decay by role.

    w_up: NamedArray = field(metadata=MATRIX)

This module imports no JAX, so that optimizer configs can name roles.
"""

from collections.abc import Mapping
from typing import Literal

type Role = Literal["matrix", "head", "embedding", "norm", "expert", "router", "gate"]
ROLES: tuple[Role, ...] = ("matrix", "head", "embedding", "norm", "expert", "router", "gate")
KEY = "role"
"""Key of the role in a dataclass field's metadata."""

MATRIX: Mapping[str, Role] = {KEY: "matrix"}
"""A weight inside a block that is a matrix from or to the residual stream."""
EXPERT: Mapping[str, Role] = {KEY: "expert"}
"""The same for every expert of a layer: a stack of matrices, each with a norm of its own. It decays where matrices do."""
ROUTER: Mapping[str, Role] = {KEY: "router"}
"""The matrix that makes a router's logits."""
GATE: Mapping[str, Role] = {KEY: "gate"}
"""A matrix whose products only scale something: of a gated norm, or of attention heads."""
HEAD: Mapping[str, Role] = {KEY: "head"}
"""The output matrix, where it is not the embedding."""
EMBEDDING: Mapping[str, Role] = {KEY: "embedding"}
NORM: Mapping[str, Role] = {KEY: "norm"}
"""The scale of a normalization."""
STATE: Mapping[str, str] = {KEY: "state"}
"""No parameter: an array that training changes without a gradient. It is saved and served with the model, and gets no decay,
no average and no share in the clipped norm (`trainer.model.parts`)."""
