"""Cards for the Hugging Face hub: `README.md` with YAML metadata, of a model or of a data set.

https://huggingface.co/docs/hub/model-cards. The hub knows a fixed list of licence ids; another licence is `other` with a name.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from standards.ancestry import UNKNOWN_LICENCE, Ancestry, SourceFacts, licences_of

HUB_LICENCES = frozenset(
    {
        *("apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "isc", "unlicense", "zlib", "mpl-2.0"),
        *("cc0-1.0", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "odc-by", "pddl"),
        *("gpl-2.0", "gpl-3.0", "lgpl-3.0", "agpl-3.0"),
    }
)
"""Ids of the hub's list that our sources use or may use; each is an SPDX id in lower case."""
SHOWN_SOURCES = 200


def model_card(ancestry: Ancestry, licence: str | None, log_root: str | None, key_id: str) -> str:
    """Return the README of an exported model. `licence`: of the weights, as their owner states it; None: not stated."""
    architecture = str(ancestry.artifact.extra.get("hf_model", {}).get("architecture", ""))
    metadata = {
        **_licence_metadata(licence),
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["marin-lab", *([architecture] if architecture else [])],
    }
    return _page(metadata, ancestry, "Model", licence, log_root, key_id)


def dataset_card(ancestry: Ancestry, log_root: str | None, key_id: str) -> str:
    """Return the README of an exported corpus. Its licences are those of its sources."""
    licences = licences_of(ancestry.sources)
    licence = licences[0] if len(licences) == 1 and licences[0] != UNKNOWN_LICENCE else None
    rows = int(ancestry.artifact.statistics.get("rows_out") or 0)
    files = {
        split: f"{split}/*.parquet"
        for split in ("train", "heldout")
        if any(entry.path.startswith(f"{split}/") for entry in ancestry.artifact.files)
    }
    names = {"train": "train", "heldout": "validation"}
    metadata = {
        **_licence_metadata(licence),
        "task_categories": ["text-generation"],
        "size_categories": [size_category(rows)],
        "tags": ["marin-lab"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": names[split], "path": pattern} for split, pattern in files.items()],
            }
        ],
    }
    return _page(metadata, ancestry, "Data set", licence, log_root, key_id)


def size_category(rows: int) -> str:
    """Return the hub's name for a number of rows.

    >>> size_category(999), size_category(1_000), size_category(2_000_000)
    ('n<1K', '1K<n<10K', '1M<n<10M')
    """
    steps = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
    if rows < 1_000:
        return "n<1K"
    at = min(len(str(rows)) - 4, len(steps) - 1)
    return f"{steps[at]}<n<{steps[at + 1]}" if at + 1 < len(steps) else "n>1T"


def _licence_metadata(licence: str | None) -> dict[str, str]:
    if licence is None:
        return {"license": "other", "license_name": "see-sources", "license_link": "README.md"}
    if licence.lower() in HUB_LICENCES:
        return {"license": licence.lower()}
    return {"license": "other", "license_name": licence.lower().replace(" ", "-"), "license_link": "README.md"}


def _page(
    metadata: Mapping[str, Any], ancestry: Ancestry, kind: str, licence: str | None, log_root: str | None, key_id: str
) -> str:
    manifest = ancestry.artifact
    origin = manifest.made_by
    facts = [
        ("artifact", f"`{manifest.spec.address}`"),
        ("data version", f"`{manifest.data_version}`"),
        ("made by", f"{_cell(origin.user)} on {_cell(origin.host)}, {manifest.created}, code `{origin.commit}`"),
        ("licence", _cell(licence) if licence else "not stated by its owner; those of the sources are below"),
        ("contamination audit", _audit(ancestry)),
        ("publisher's key", f"`{key_id}`"),
        ("root of the transparency log", f"`{log_root}`" if log_root else "no log is kept"),
    ]
    front = yaml.safe_dump(dict(metadata), sort_keys=False, allow_unicode=True)
    lines = [f"---\n{front}---\n", f"# {kind} {_cell(manifest.spec.name)}\n", "| what | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts]
    lines += ["", "## Sources", "", *_source_table(ancestry.sources), "", "## Verify", "", VERIFY, ""]
    return "\n".join(lines)


VERIFY = (
    "`provenance/` holds the signed manifests of this artifact and of everything it was made from.\n"
    "With a checkout of the lab: `./marin verify --attested FOLDER --key PUBLISHER.pem`.\n"
    "The envelopes are DSSE over in-toto statements, so `cosign`,\n"
    "`securesystemslib` and `in-toto-attestation` read them too (docs/recipes/verify_a_checkpoint.md)."
)


def _audit(ancestry: Ancestry) -> str:
    if ancestry.audit is None:
        return "not audited"
    return f"{ancestry.verdict} (`{ancestry.audit.data_version}`)"


def _source_table(sources: Sequence[SourceFacts]) -> list[str]:
    if not sources:
        return ["No source is above this artifact."]
    rows = [
        f"| {_cell(one.name)} | {_cell(one.licence or f'unverified{f" (said to be {one.claim})" if one.claim else ""}')} "
        f"| `{one.data_version}` |"
        for one in sources[:SHOWN_SOURCES]
    ]
    more = [f"| {len(sources) - SHOWN_SOURCES} more | | |"] if len(sources) > SHOWN_SOURCES else []
    return ["| source | licence | data version |", "|---|---|---|", *rows, *more]


def _cell(text: str) -> str:
    """Text that cannot leave its table cell or become markup: it comes from manifests."""
    flat = " ".join(text.split())
    for mark in "\\`|<>[]*_":
        flat = flat.replace(mark, f"\\{mark}")
    return flat
