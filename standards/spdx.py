"""A bill of materials in SPDX 3.0.1 with its AI and Dataset profiles (https://spdx.github.io/spdx-spec/v3.0.1/).

The model is an `ai_AIPackage`, each source a `dataset_DatasetPackage` that it was trained on. Licences are SPDX expressions;
one that nobody has verified is `NOASSERTION`.
"""

from collections.abc import Mapping
from typing import Any

from lineage.storage.digests import identity_digest
from standards.ancestry import UNKNOWN_LICENCE, Ancestry, SourceFacts
from standards.spdx_licences import expression

CONTEXT = "https://spdx.org/rdf/3.0.1/spdx-context.jsonld"
CREATION = "_:creation"
NO_ASSERTION = "https://spdx.org/rdf/3.0.1/terms/Core/NoAssertionElement"


def bill_of_materials(ancestry: Ancestry, sha256: Mapping[str, str], licence: str | None) -> dict[str, Any]:
    """Return the bill of materials of an exported model. `sha256`: of each exported file; `licence`: of the weights."""
    manifest = ancestry.artifact
    base = f"urn:spdx.dev:marin-lab-{manifest.spec.version}-{manifest.data_version}"
    model, author = f"{base}#model", f"{base}#author"
    sources = [(f"{base}#source-{number}", source) for number, source in enumerate(ancestry.sources)]
    elements = [
        _creation(manifest.created, author),
        {"type": "Person", "spdxId": author, "creationInfo": CREATION, "name": manifest.made_by.user},
        {
            "type": "ai_AIPackage",
            "spdxId": model,
            "creationInfo": CREATION,
            "name": manifest.spec.name,
            "software_packageVersion": manifest.data_version,
            "software_primaryPurpose": "model",
            "software_downloadLocation": f"urn:marin-lab:artifact:{manifest.spec.address}",
            "suppliedBy": author,
            "releaseTime": _seconds(manifest.created),
            "builtTime": _seconds(manifest.created),
            "ai_informationAboutTraining": f"stage {manifest.spec.stage}@{manifest.spec.stage_version}",
            "ai_limitation": f"contamination audit: {ancestry.verdict}",
        },
        *_licence(base, "model", model, licence or UNKNOWN_LICENCE),
    ]
    for at, source in sources:
        elements += [_dataset(at, source), *_licence(base, at.rpartition("#")[2], at, source.licence or UNKNOWN_LICENCE)]
    if sources:
        elements.append(_relationship(f"{base}#trained-on", model, "trainedOn", [at for at, _ in sources]))
    files = [_file(base, path, digest) for path, digest in sorted(sha256.items())]
    elements += files
    if files:
        elements.append(_relationship(f"{base}#contains", model, "contains", [each["spdxId"] for each in files]))
    document = {
        "type": "SpdxDocument",
        "spdxId": f"{base}#document",
        "creationInfo": CREATION,
        "profileConformance": ["core", "software", "ai", "dataset", "simpleLicensing"],
        "rootElement": [model],
        "element": [each["spdxId"] for each in elements if "spdxId" in each],
    }
    return {"@context": CONTEXT, "@graph": [*elements, document]}


def _creation(when: str, author: str) -> dict[str, Any]:
    return {
        "type": "CreationInfo",
        "@id": CREATION,
        "specVersion": "3.0.1",
        "created": _seconds(when),
        "createdBy": [author],
    }


def _seconds(when: str) -> str:
    """A time as SPDX writes it: UTC to the second. Manifests have it with an offset and fractions."""
    return f"{when[:19]}Z"


def _dataset(at: str, source: SourceFacts) -> dict[str, Any]:
    return {
        "type": "dataset_DatasetPackage",
        "spdxId": at,
        "creationInfo": CREATION,
        "name": source.name,
        "software_packageVersion": source.data_version,
        "software_primaryPurpose": "data",
        "software_downloadLocation": f"urn:marin-lab:artifact:{source.address}",
        "dataset_datasetType": ["text"],
    } | ({"comment": f"its licence is said to be {source.claim}, which nobody has verified"} if source.claim else {})


def _licence(base: str, name: str, of: str, licence: str) -> list[dict[str, Any]]:
    """The licence of one element, and the relationship that says so."""
    at = f"{base}#licence-{name}"
    if licence == UNKNOWN_LICENCE:
        return [_relationship(f"{at}-of", of, "hasDeclaredLicense", [NO_ASSERTION])]
    stated = {
        "type": "simplelicensing_LicenseExpression",
        "spdxId": at,
        "creationInfo": CREATION,
        "simplelicensing_licenseExpression": expression(licence),
    }
    return [stated, _relationship(f"{at}-of", of, "hasDeclaredLicense", [at])]


def _file(base: str, path: str, sha256: str) -> dict[str, Any]:
    return {
        "type": "software_File",
        "spdxId": f"{base}#file-{identity_digest(path)}",
        "creationInfo": CREATION,
        "name": path,
        "verifiedUsing": [{"type": "Hash", "algorithm": "sha256", "hashValue": sha256}],
    }


def _relationship(at: str, of: str, kind: str, to: list[str]) -> dict[str, Any]:
    return {
        "type": "Relationship",
        "spdxId": at,
        "creationInfo": CREATION,
        "from": of,
        "relationshipType": kind,
        "to": to,
    }
