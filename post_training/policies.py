"""The policies that a run publishes for its rollout workers: a folder for each, in Hugging Face's form, and a record of each.

A worker follows the folder (`python -m serving.server FOLDER --follow`) and answers with the digest of its weights. The record
says which policy of the run that digest is. Records stay, so late answers are known after a restart; of the folders only the
newest two stay.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.numpy import save_file

from post_training.rollouts import policy_digest
from serving.server.following import Newest, name_newest
from serving.server.loaded_model import folder_digest
from trainer.arrays import copied_to_host
from trainer.hf.convert import hf_config, to_hf
from trainer.inference import TOKENIZER_FILE
from trainer.model.lora import Adapted
from trainer.model.protocol import LanguageModel
from trainer.spec.models import ModelConfig

KEPT_FOLDERS = 2


@dataclass(frozen=True)
class Policy:
    """A published policy. `version` is the iteration that it begins."""

    version: int
    weights: str
    """The digest by which a server names it."""
    digest: str
    """`post_training.rollouts.policy_digest`."""
    step: int


@dataclass(frozen=True)
class Policies:
    """The published policies of one run, in a folder that its workers see too."""

    folder: Path
    config: ModelConfig
    tokenizer: Path
    stop: int

    def publish(self, version: int, step: int, model: LanguageModel) -> Policy:
        """Write a policy, unless it is there, and name it as the newest.

        Raises: ValueError if another policy of that version was published.
        """
        digest = policy_digest(model)
        policy = self.known().get(version)
        if policy is not None and policy.digest != digest:
            raise ValueError(
                f"{self.folder} has the policy {policy.digest} of iteration {version}, this run has {digest}: the updates "
                "before it did not give the same bits; run on the machine that began, or delete the folder"
            )
        if policy is None or not self._place(version).is_dir():
            policy = Policy(version, self._write(version, model), digest, step)
            scratch = self._record(version).with_suffix(".new")
            scratch.write_text(json.dumps(asdict(policy)) + "\n")
            scratch.replace(self._record(version))
        name_newest(self.folder, Newest(self._place(version).name, policy.weights))
        for older in sorted(self.folder.glob("policy-*/"))[:-KEPT_FOLDERS]:
            if older.name < self._place(version).name:
                shutil.rmtree(older)
        return policy

    def known(self) -> dict[int, Policy]:
        """Return every policy that was published, by version."""
        records = [Policy(**json.loads(path.read_text())) for path in sorted(self.folder.glob("policy-*.json"))]
        return {record.version: record for record in records}

    def _write(self, version: int, model: LanguageModel) -> str:
        """Write the folder of a policy and return its digest."""
        place, scratch = self._place(version), self.folder / "unfinished"
        for rest in (place, scratch):
            if rest.exists():
                shutil.rmtree(rest)
        scratch.mkdir(parents=True)
        arrays = copied_to_host(model.merged() if isinstance(model, Adapted) else model).arrays
        save_file(to_hf(arrays, self.config), scratch / "model.safetensors", metadata={"format": "pt"})
        stated = hf_config(self.config, (self.stop,), self.stop) | {"torch_dtype": "float32"}
        (scratch / "config.json").write_text(json.dumps(stated, indent=1) + "\n")
        shutil.copyfile(self.tokenizer, scratch / TOKENIZER_FILE)
        weights = folder_digest(scratch)
        scratch.rename(place)
        return weights

    def _place(self, version: int) -> Path:
        return self.folder / f"policy-{version:08d}"

    def _record(self, version: int) -> Path:
        return self.folder / f"policy-{version:08d}.json"
