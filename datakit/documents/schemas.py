"""Column names and schemas of documents and attributes, and names of files that another stage reads.

Readers and writers import them from here. So a column has one name, and a reader does not import the writer: otherwise
every worker of a corpus would load scipy for the name of a file.
"""

import pyarrow as pa

ID = "id"
TEXT = "text"
SOURCE = "source"
METADATA = "metadata"

DUPLICATES_FILE = "duplicates.parquet"
CLUSTERS_FOLDER = "clusters"
"""Folder of `datakit.duplicates`: a file for each part of each source's documents."""

CLUSTERS_SCHEMA = pa.schema([(ID, pa.string()), ("cluster_id", pa.string()), ("is_kept", pa.bool_())])
"""The documents of a part that are in a cluster, in the order of their ids."""

CONTAINED_FOLDER = "contained"
"""Folder of `datakit.containment`: a file for each part of each source's documents."""

SPANS_FOLDER = "spans"
"""File of `datakit.paragraphs`: what to cut out of each document."""

SEMANTIC_FOLDER, KEPT_ID = "semantic_duplicates", "kept_id"
"""Folder of `datakit.semantic_duplicates`, and its column of the document that says the same; "" if a document stays."""

DOMAINS_FOLDER, DOMAIN = "domains", "domain"
"""Tables of domains beside the documents' parts, and the column of the domain. Here, because the tagger imports scipy."""

DOCUMENT_SCHEMA = pa.schema([(ID, pa.string()), (TEXT, pa.large_string()), (SOURCE, pa.string()), (METADATA, pa.string())])
"""`id` = xxh3_128 of the UTF-8 text in hex; `metadata` is a JSON object that holds at least `source_id`."""

DROPPED_SCHEMA = pa.schema([("source_id", pa.string()), ("reason", pa.string()), ("sample", pa.string())])
"""A small sample of the records that normalization dropped."""

CORPUS_DROPPED_SCHEMA = pa.schema([(ID, pa.string()), ("reason", pa.string())])
"""Every document that a corpus left out, with the first reason that applied."""


def check_schema(table: pa.Table, frozen: pa.Schema, where: str) -> None:
    """Refuse rows of another schema. An added column or another type must be declared.

    Raises: ValueError that prints both schemas.
    """
    if not table.schema.equals(frozen):
        raise ValueError(
            f"{where}: a batch would change the schema, which is frozen\n  frozen: {columns(frozen)}\n"
            f"  batch:  {columns(table.schema)}\nmake the batch fit, or change the schema and bump the stages that write it"
        )


def columns(schema: pa.Schema) -> str:
    """`id: string, text: large_string, ...`."""
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
