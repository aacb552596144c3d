"""Links from the Dagster UI to pages of artifacts, which the server beside the UI answers."""

import os
from urllib.parse import quote

import dagster as dg

from lineage.artifact.store import Artifact
from marin_assets.page_server import DEFAULT, VARIABLE, store_name


def page_link(artifact: Artifact, name: str) -> dg.MetadataValue:
    """Return the link to a page of an artifact; its path if the store is remote and no address is set."""
    base = os.environ.get(VARIABLE) or (DEFAULT if artifact.store.storage.is_local else "")
    if not base:
        return dg.MetadataValue.path(f"{artifact.uri}/{artifact.manifest.data_folder}/{name}")
    return dg.MetadataValue.url(base.rstrip("/") + quote(f"/{store_name(artifact.store)}/{artifact.spec.address}/{name}"))
