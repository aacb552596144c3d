"""in-toto statements: what a signature says about a manifest, a record beside it, or an exported folder.

A statement (https://in-toto.io/Statement/v1) names files by digest and says something about them. For a manifest this is
SLSA provenance version 1: the stage and its config, the inputs as resolved dependencies, and who made it.

Subjects of a manifest are the manifest's text (sha256) and every data file. A data file has its xxh3_128, which finds accidents
and is no cryptographic digest; files of the stages in `STRONG_STAGES`, which leave the lab, have their sha256 as well.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lineage.artifact.manifest import MANIFEST_NAME, Manifest
from lineage.signing.envelope import IN_TOTO, Envelope, EnvelopeError
from lineage.storage.digests import canonical_json

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
RECORD = "urn:marin-lab:record:v1"
PUBLISHED = "urn:marin-lab:published:v1"
TREE_HEAD = "urn:marin-lab:tree-head:v1"
BUILD_TYPE = "urn:marin-lab:stage:v1"
STRONG_STAGES = frozenset({"trainer.checkpoint", "trainer.hf_model", "trainer.hf_import"})
"""Stages whose files' sha256 is signed too. Not all: sha256 takes .4 s a GB here, a tenth of what a data stage may take."""


def text_sha256(text: str) -> str:
    """Return the sha256 of a text in UTF-8, 64 hex characters."""
    return hashlib.sha256(text.encode()).hexdigest()


def manifest_statement(manifest: Manifest, text: str, sha256: Mapping[str, str] | None = None) -> Envelope:
    """Return the unsigned statement about a manifest. `text` is the manifest's text; `sha256` that of its files, by path."""
    strong = sha256 or {}
    subjects = [{"name": f"{manifest.spec.address}/{MANIFEST_NAME}", "digest": {"sha256": text_sha256(text)}}]
    for entry in manifest.files:
        digest = {"xxh3_128": entry.digest} | ({"sha256": strong[entry.path]} if entry.path in strong else {})
        subjects.append({"name": f"{manifest.data_folder}/{entry.path}", "digest": digest})
    return statement(subjects, PROVENANCE, _provenance(manifest))


def record_statement(name: str, text: str, role: str) -> Envelope:
    """Return the unsigned statement about a small record (a verdict, a forecast): its name, digest, and the signer's role."""
    return statement([{"name": name, "digest": {"sha256": text_sha256(text)}}], RECORD, {"role": role})


def statement(subjects: Sequence[Mapping[str, Any]], predicate_type: str, predicate: Mapping[str, Any]) -> Envelope:
    """Return an unsigned envelope with an in-toto statement about these subjects."""
    record = {"_type": STATEMENT, "subject": list(subjects), "predicateType": predicate_type, "predicate": predicate}
    return Envelope(canonical_json(record).encode(), IN_TOTO)


def read_statement(envelope: Envelope, where: str) -> dict[str, Any]:
    """Return the statement in an envelope. Raises: EnvelopeError if it holds none."""
    if envelope.payload_type != IN_TOTO:
        raise EnvelopeError(f"{where}: payload type {envelope.payload_type!r}; wanted is {IN_TOTO}")
    try:
        record = json.loads(envelope.payload)
        subjects = {str(each["name"]): each["digest"] for each in record["subject"]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise EnvelopeError(f"{where} holds no in-toto statement: {type(error).__name__}: {error}") from error
    digests_are_maps = all(isinstance(digest, dict) for digest in subjects.values())
    if record.get("_type") != STATEMENT or not digests_are_maps or not isinstance(record.get("predicate"), dict):
        raise EnvelopeError(f"{where}: statement type {record.get('_type')!r}; wanted is {STATEMENT} with digests by name")
    return record


def digest_of(record: Mapping[str, Any], name: str) -> str | None:
    """Return the sha256 that a statement gives one subject, or None where it does not name it."""
    return next((each["digest"].get("sha256") for each in record["subject"] if each["name"] == name), None)


def _provenance(manifest: Manifest) -> dict[str, Any]:
    spec, made_by = manifest.spec, manifest.made_by
    commit = made_by.commit.removesuffix("-dirty")
    code = [{"name": "code", "digest": {"gitCommit": commit}}] if re.fullmatch(r"[0-9a-f]{40}", commit) else []
    inputs = [
        {"name": ref.name, "uri": f"urn:marin-lab:artifact:{ref.address}", "digest": {"marinDataVersion": ref.data_version}}
        for ref in spec.inputs
    ]
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "key": list(spec.key),
                "partition": spec.partition,
                "stage": spec.stage,
                "stageVersion": spec.stage_version,
                "config": spec.config,
                "dataVersion": manifest.data_version,
            },
            "internalParameters": {"codeFingerprint": manifest.code_fingerprint, "packages": dict(manifest.packages)},
            "resolvedDependencies": [*inputs, *code],
        },
        "runDetails": {
            "builder": {"id": f"urn:marin-lab:host:{made_by.host}", "version": {"commit": made_by.commit}},
            "metadata": {"invocationId": manifest.run_id, "finishedOn": manifest.created},
            "byproducts": [{"name": "user", "annotations": {"user": made_by.user}}],
        },
    }
