"""What breaks an export without an error: each fault alone, in a folder that is right otherwise. (The whole canary runs in
tests/shell/test_campaigns.py, on a real export.)"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from served_models import untrained
from unigram import START, byte_tokenizer

from evals.tasks.export_check import special_tokens_wrong
from evals.tasks.generator import sampling_from
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class Folder:
    """An exported folder, and how it differs from a right one."""

    config: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)
    specials: tuple[str, ...] = ("<|endoftext|>",)
    template: str = ""


def write_tokenizer(folder: Path, specials: tuple[str, ...], template: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(list(specials))
    tokenizer.save(str(folder / "tokenizer.json"))
    if template:
        (folder / "chat_template.jinja").write_text(template)


def write_trained(out: Writer, config: Folder) -> None:
    write_tokenizer(out.folder, config.specials, config.template)
    out.extra["tokenizer"] = {"vocab_size": 257, "eos": START}


def write_export(out: Writer, config: Folder) -> None:
    write_tokenizer(out.folder, config.specials, config.template)
    ends = {"bos_token_id": START, "eos_token_id": [START]}
    (out.folder / "config.json").write_text(json.dumps({"vocab_size": 257} | ends | config.config))
    (out.folder / "generation_config.json").write_text(json.dumps(ends | config.generation))


TRAINED = Node(("tokenizer",), None, Stage("tests.tokenizer", "1", write_trained), Folder())
EXPORT = Stage("tests.export", "1", write_export)


def made(root: Path, export: Folder) -> tuple[Artifact, Artifact]:
    store = Store(str(root))
    return build(store, Node(("hf",), None, EXPORT, export)).artifact, build(store, TRAINED).artifact


@pytest.mark.parametrize(
    ("export", "wrong"),
    [
        (Folder(), []),
        (Folder(generation={"eos_token_id": None}), ["generation_config.json ends texts at [None]; training", "no special"]),
        (Folder(generation={"eos_token_id": 7}), ["generation_config.json ends texts at [7]; training", "at [7]"]),
        (Folder(config={"eos_token_id": [START, 3]}), ["config.json ends texts at [3], no special token"]),
        (Folder(config={"bos_token_id": 1}), ["config.json begins texts with 1"]),
        (Folder(config={"vocab_size": 256}), ["config.json has 256 rows for 257 tokens"]),
        (Folder(template="{{ messages }}"), ["chat_template.jinja is not the one of training"]),
        (Folder(specials=()), ["tokenizer.json has the special tokens {}"]),
        (Folder(specials=("<|endoftext|>", "<|x|>")), ["has the special tokens", "has 258 tokens", "has 257 rows for 258"]),
    ],
)  # fmt: skip
def test_every_fault_of_the_special_tokens_is_reported(tmp_path, export, wrong):
    faults = special_tokens_wrong(*made(tmp_path, export))
    assert len(faults) == len(wrong)
    assert all(phrase in sentence for phrase, sentence in zip(wrong, faults, strict=True)), faults


def test_texts_begin_where_documents_do_whatever_opens_a_prompt():
    served = untrained("m")
    texts, other = (sampling_from(each, 2, 8, seed=0) for each in (served, replace(served, start_token=65)))
    assert texts == other
