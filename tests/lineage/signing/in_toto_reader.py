"""Statements as the library in-toto-attestation reads them."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import ParseDict
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement


def validate(record: Mapping[str, Any]) -> None:
    """Raises: ValueError or ParseError if that library rejects the statement."""
    Statement.copy_from_pb(ParseDict(dict(record), statement_pb2.Statement())).validate()  # pyrefly: ignore
