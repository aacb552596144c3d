"""A corpus in Croissant 1.1, the JSON-LD form of data sets (https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html).

Each Parquet file is a `FileObject` with its sha256, each split a `FileSet` and a `RecordSet` of the documents' columns. Sources
are named as what the data set is derived from.
"""

from collections.abc import Mapping
from typing import Any

from standards.ancestry import UNKNOWN_LICENCE, Ancestry, licences_of
from standards.spdx_licences import is_expression

CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
SPLITS = ("train", "heldout")
COLUMNS = {
    "id": "xxh3_128 of the text, 32 hex digits",
    "text": "the document",
    "source": "name of its source",
    "metadata": "JSON",
}
CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "excludes": "cr:excludes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "prov": "http://www.w3.org/ns/prov#",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def croissant(ancestry: Ancestry, sha256: Mapping[str, str]) -> dict[str, Any]:
    """Return the description of a corpus. `sha256`: of each of its Parquet files, by path.

    Raises: ValueError for a file of the corpus whose sha256 is not given.
    """
    manifest = ancestry.artifact
    files = [entry for entry in manifest.files if entry.path.startswith(tuple(f"{split}/" for split in SPLITS))]
    if absent := [entry.path for entry in files if entry.path not in sha256]:
        raise ValueError(f"{manifest.spec.name}: the sha256 of {absent[0]} is not given; Croissant requires it")
    objects = [
        {
            "@type": "cr:FileObject",
            "@id": entry.path,
            "name": entry.path,
            "contentUrl": entry.path,
            "contentSize": f"{entry.bytes} B",
            "encodingFormat": "application/x-parquet",
            "sha256": sha256[entry.path],
        }
        for entry in files
    ]
    splits = [split for split in SPLITS if any(entry.path.startswith(f"{split}/") for entry in files)]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": manifest.spec.name,
        "description": f"Documents of {manifest.spec.name}, made by stage {manifest.spec.stage}@{manifest.spec.stage_version}.",
        "url": f"urn:marin-lab:artifact:{manifest.spec.address}",
        "version": f"1.0.0+{manifest.data_version}",
        "datePublished": manifest.created,
        "license": _licences(ancestry),
        "creator": {"@type": "sc:Organization", "name": "the lab whose key signs provenance/attestation.json"},
        "citeAs": f"{manifest.spec.name}, data version {manifest.data_version}",
        "prov:wasDerivedFrom": [{"@id": f"urn:marin-lab:artifact:{source.address}"} for source in ancestry.sources],
        "distribution": [*objects, *(_file_set(split, [e.path for e in files]) for split in splits)],
        "recordSet": [_record_set(split) for split in splits],
    }


def _licences(ancestry: Ancestry) -> list[str]:
    """Licences as addresses where SPDX has one, else in words."""
    return [
        f"https://spdx.org/licenses/{each}.html" if is_expression(each) and " " not in each else each
        for each in licences_of(ancestry.sources)
    ] or [UNKNOWN_LICENCE]


def _file_set(split: str, paths: list[str]) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": f"{split}-files",
        "name": f"{split}-files",
        "containedIn": [{"@id": path} for path in paths if path.startswith(f"{split}/")],
        "encodingFormat": "application/x-parquet",
        "includes": f"{split}/*.parquet",
    }


def _record_set(split: str) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{split}/{column}",
                "name": f"{split}/{column}",
                "description": meaning,
                "dataType": "sc:Text",
                "source": {"fileSet": {"@id": f"{split}-files"}, "extract": {"column": column}},
            }
            for column, meaning in COLUMNS.items()
        ],
    }
