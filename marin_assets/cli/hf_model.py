"""The export of a checkpoint in Hugging Face's form, whether a recipe or a spec file declared its run."""

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact
from lineage.config import to_jsonable
from lineage.trust.fingerprint import stage_code
from lineage.trust.gate import check_launch, utc_today
from lineage.writing.write import writing
from serving.server.loaded_model import tokenizer_of
from trainer.hf.export import HF_MODEL, HfExportConfig, export_hf
from trainer.hf.import_model import HF_IMPORT
from trainer.spec.stage import CHECKPOINT

CHECKPOINTS = (CHECKPOINT.name, HF_IMPORT.name)


def hf_model_of(artifact: Artifact) -> Artifact:
    """Return an artifact that others can open: for a checkpoint its `hf_model`, made now if it is missing; else the artifact.

    Raises: GateError naming ancestors of the checkpoint that are not fit to build on.
    """
    if artifact.spec.stage not in CHECKPOINTS:
        return artifact
    config, tokenizer = HfExportConfig(), tokenizer_of(artifact)
    refs = artifact.ref("checkpoint"), tokenizer.ref("tokenizer")
    key = (*artifact.spec.key[:-1], "hf_model")
    spec = ArtifactSpec(key, artifact.spec.partition, HF_MODEL.name, HF_MODEL.version, to_jsonable(config), refs)
    there = artifact.store.find(spec)
    if there is not None:
        return there
    waivers = check_launch(artifact.store, spec.name, refs, {}, utc_today())
    code = stage_code(HF_MODEL.module)
    with writing(artifact.store, spec, code.fingerprint, "by hand", waivers=waivers, packages=tuple(code.packages)) as out:
        export_hf(out, config, artifact, tokenizer)
    return out.artifact
