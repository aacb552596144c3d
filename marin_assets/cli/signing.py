"""What `marin key`, `marin sign`, `marin log`, `marin export` and `marin verify --attested` do."""

import json
import os
import shutil
import uuid
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from lineage.artifact.locate import locate
from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact
from lineage.signing.attested import verify_attested
from lineage.signing.bundle import attest, write_log, write_manifests
from lineage.signing.judge import judge_of
from lineage.signing.keyless import Identity
from lineage.signing.keys import PublicKey, Signer, signer_from
from lineage.signing.log import LogView, append, log_of
from lineage.signing.policy import Policy, policy_from
from lineage.signing.sign import countersign, find_envelope, keyless_address, sign_manifest
from lineage.storage.digests import file_sha256
from lineage.trust.gate import inspect
from marin_assets.cli.console import print_json
from marin_assets.cli.hf_model import hf_model_of
from marin_assets.cli.show_lineage import stores_of
from standards.ancestry import Ancestry, ancestry_of, audit_of
from standards.croissant import croissant
from standards.hf_cards import dataset_card, model_card
from standards.openlineage import run_event, send
from standards.spdx import bill_of_materials
from trainer.hf.gguf_export import write_gguf

CORPUS_STAGE = "datakit.corpus"
CARD, CROISSANT, BILL = "README.md", "croissant.json", "sbom.spdx.json"


def print_key(*, pem: bool, as_json: bool = False) -> None:
    """Print the public half of this process's signing key: one line for `lab.yaml`, or PEM for other tools."""
    public = _signer().public
    if as_json:
        print_json({"id": public.key_id, "key": public.text, "pem": public.pem})
        return
    print(public.pem if pem else public.text, end="" if pem else "\n")


def sign(text: str, root: str | None, *, as_json: bool = False, console: Console) -> None:
    """Sign an artifact's manifest, or add a signature to its envelope. The files are read and compared first."""
    artifact, signer = locate(stores_of(root), text), _signer()
    artifact.verify()
    storage, where = artifact.store.storage, f"{artifact.spec.address}/{MANIFEST_NAME}"
    manifest_text = storage.read_text(where) or ""
    if find_envelope(storage, where, manifest_text) is None:
        sign_manifest(storage, artifact.manifest, manifest_text, signer=signer)
    else:
        countersign(storage, where, manifest_text, signer)
    if as_json:
        print_json({"artifact": artifact.name, "signed_by": signer.public.key_id})
    else:
        console.print(escape(f"{artifact.name} is signed by {signer.public.key_id}"), soft_wrap=True)


def add_keyless(text: str, root: str | None, bundle: str, name: str, *, as_json: bool = False, console: Console) -> None:
    """Put a keyless signature over an artifact's manifest beside it, if the identity that the policy calls so has made it.

    Raises: ValueError for a name that the policy lacks, or a bundle that is no signature of that identity.
    """
    artifact, policy = locate(stores_of(root), text), policy_from(os.environ)
    storage, where = artifact.store.storage, f"{artifact.spec.address}/{MANIFEST_NAME}"
    named = next((each for each in policy.identities if each.name == name), None)
    if named is None:
        known = ", ".join(each.name for each in policy.identities) or "none"
        raise ValueError(f"policy {policy.source} has no identity {name!r}; it has: {known}")
    signature, manifest_text = Path(bundle).read_text(encoding="utf-8"), storage.read_text(where) or ""
    if problem := named.identity.problem(manifest_text.encode(), signature, bundle):
        raise ValueError(problem)
    storage.replace(keyless_address(where, manifest_text, name), signature.encode())
    if as_json:
        print_json({"artifact": artifact.name, "signed_by": named.identity.name})
    else:
        console.print(escape(f"{artifact.name} is signed by {name} ({named.identity.name})"), soft_wrap=True)


def append_logs(root: str | None, *, as_json: bool = False, console: Console) -> None:
    """Append what each store holds to its log and print the heads. Raises: ValueError if the policy names no log."""
    policy, logs = policy_from(os.environ), []
    for store in stores_of(root):
        where = log_of(policy, store.storage)
        if where is None:
            raise ValueError(
                f"no log is named (policy {policy.source}); add `log: gs://BUCKET/FOLDER` to lab.yaml, a place that writers of "
                "the store cannot write (docs/recipes/verify_a_checkpoint.md)"
            )
        view = append(where, store.storage, _signer(), policy)
        logs.append({"log": where.root, "entries": view.head.size, "root": view.head.root})
    if as_json:
        print_json(logs)
        return
    for each in logs:
        console.print(escape(f"{each['log']}: {each['entries']} entries, root {each['root']}"), soft_wrap=True)


def export(
    text: str,
    root: str | None,
    into: str,
    licence: str | None,
    *,
    form: str = "hf",
    as_json: bool = False,
    console: Console,
) -> bool:
    """Write an artifact as a folder for others: files, card, bill of materials or Croissant, provenance, attestation.

    A checkpoint is written in Hugging Face's form. `form` gguf writes one file for llama.cpp, without provenance.

    Returns whether it was written: the gate's findings stop it. Raises: ValueError for a folder that exists.
    """
    target = Path(into)
    if target.exists():
        raise ValueError(f"{target} exists; give a path that does not")
    artifact, signer = hf_model_of(locate(stores_of(root), text)), _signer()
    findings = inspect(artifact.store, [artifact.ref("exported")], {})
    signed_by = None if form == "gguf" else signer.public.key_id
    if not findings:
        artifact.verify()
        _write_form(target, artifact, signer, form, licence)
    if as_json:
        problems = [asdict(finding) for finding in findings]
        print_json({"artifact": artifact.name, "into": str(target), "signed_by": signed_by, "problems": problems})
        return not findings
    for finding in findings:
        console.print(escape(f"{finding.problem}: {finding.artifact}: {finding.detail}"), soft_wrap=True)
    if not findings:
        how = "without provenance: GGUF has no place for it" if signed_by is None else f"signed by {signed_by}"
        console.print(escape(f"{artifact.name} is in {target}, {how}"), soft_wrap=True)
    return not findings


def _write_form(target: Path, artifact: Artifact, signer: Signer, form: str, licence: str | None) -> None:
    """Write an artifact to a path that does not exist yet, whole or not at all."""
    if form == "gguf":
        write_gguf(artifact.folder(), target, artifact.name)
        return
    judge = judge_of(artifact.store.storage)
    scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        write_export(scratch, artifact, signer, judge.policy, judge.log, licence)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_export(
    folder: Path, artifact: Artifact, signer: Signer, policy: Policy, log: LogView | None, licence: str | None
) -> None:
    """Fill a folder that does not exist yet; its attestation is written last."""
    shutil.copytree(artifact.folder(), folder, ignore=_only_listed(artifact))
    audit = audit_of(artifact)
    ancestry = ancestry_of(artifact, audit)
    sha256 = {entry.path: file_sha256(folder / entry.path) for entry in artifact.manifest.files}
    root, key_id = (None if log is None else log.head.root), signer.public.key_id
    for name, content in _descriptions(ancestry, sha256, licence, root, key_id).items():
        if (folder / name).exists():
            raise ValueError(f"{artifact.name} has a file {name} of its own, which the export would replace")
        (folder / name).write_text(content, encoding="utf-8")
    manifests, unsigned = write_manifests(folder, artifact)
    if log is not None:
        write_log(folder, log, manifests, signer)
    attest(folder, artifact, signer, policy, unsigned)


def _descriptions(
    ancestry: Ancestry, sha256: dict[str, str], licence: str | None, root: str | None, key_id: str
) -> dict[str, str]:
    """Return the files that describe an export, by name."""
    if ancestry.artifact.spec.stage == CORPUS_STAGE:
        described = json.dumps(croissant(ancestry, sha256), indent=1, ensure_ascii=False) + "\n"
        return {CARD: dataset_card(ancestry, root, key_id), CROISSANT: described}
    bill = json.dumps(bill_of_materials(ancestry, sha256, licence), indent=1, ensure_ascii=False) + "\n"
    return {CARD: model_card(ancestry, licence, root, key_id), BILL: bill}


def _only_listed(artifact: Artifact):
    """Leave out files that the manifest does not list: nobody has verified them."""
    folder, listed = artifact.folder(), artifact.manifest.paths

    def ignored(at: str, names: list[str]) -> set[str]:
        here = Path(at).relative_to(folder)
        return {name for name in names if not (Path(at) / name).is_dir() and (here / name).as_posix() not in listed}

    return ignored


def print_attested(folder: str, keys: list[str], identities: list[str], *, as_json: bool, console: Console) -> bool:
    """Verify an exported folder and print what it was made from. Returns whether all of it holds.

    Without keys, the policy's publishers count. `identities`: NAME=ISSUER of publishers who signed keyless.
    Raises: ValueError for an identity of another form.
    """
    named = [PublicKey.from_pem(Path(path).read_text()) for path in keys]
    policy = policy_from(os.environ)
    publishers = named or [key.public for key in policy.keys if "publish" in key.may]
    vouched = list(map(_identity, identities)) or [each.identity for each in policy.identities if "publish" in each.may]
    attested = verify_attested(Path(folder), publishers, [] if named and not identities else vouched)
    if as_json:
        print(json.dumps({"holds": attested.holds, **asdict(attested)}, indent=1, ensure_ascii=False))
        return attested.holds
    for one in attested.walked:
        signed = f"signed by {', '.join(one.signed_by)}" if one.signed_by else "not signed"
        logged = ", in the log" if one.logged else ""
        console.print(escape(f"{one.name}: {one.stage}, by {one.made_by}; {signed}{logged}"), soft_wrap=True)
    for finding in attested.findings:
        console.print(f"[red]problem[/] {escape(finding)}", soft_wrap=True)
    if attested.holds:
        console.print(escape(f"{attested.artifact} is as {', '.join(attested.publishers)} published it"), soft_wrap=True)
    return attested.holds


def _identity(text: str) -> Identity:
    name, _, issuer = text.partition("=")
    if not (name and issuer):
        raise ValueError(f"--identity is {text!r}; give NAME=ISSUER, e.g. ada@x.org=https://github.com/login/oauth")
    return Identity(name, issuer)


def send_events(text: str, root: str | None, *, as_json: bool = False, console: Console) -> bool:
    """Send the OpenLineage events of an artifact and its ancestors, oldest first. Print them if no server is named."""
    artifact = locate(stores_of(root), text)
    events = [run_event(one.manifest) for one in reversed(list(artifact.store.walk_up(artifact)))]
    if not os.environ.get("OPENLINEAGE_URL"):
        print(json.dumps(events, indent=1, ensure_ascii=False))
        return True
    taken = sum(send(event) for event in events)
    if as_json:
        print_json({"taken": taken, "events": len(events)})
    else:
        console.print(f"{taken} of {len(events)} events were taken")
    return taken == len(events)


def _signer() -> Signer:
    signer = signer_from(os.environ)
    if signer is None:
        raise ValueError("this process has no key to sign with; set MARIN_SIGNING_KEY (docs/design/provenance.md)")
    return signer
