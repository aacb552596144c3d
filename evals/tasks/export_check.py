"""The stage `evals.export_canary`: does an exported model open, stop by itself, and read the tokens of training?

Two ways in which exports break without an error: a generation config that lacks the id that ends a text (the model never
stops), and a tokenizer whose special tokens are not those of the training data. The folder is opened as a stranger opens it,
by `serving.server`'s own loader; nothing is taken from the checkpoint.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from evals.items.stage import ExportCanaryConfig
from evals.scoring.intervals import wilson
from evals.tasks.generator import Generated, sampling_from
from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.jobs.job import Job
from lineage.shards.measure import measuring
from serving.server.loaded_model import open_hf_folder

GENERATION_FILE, CONFIG_FILE, TOKENIZER_FILE = "generation_config.json", "config.json", "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"


def check_export(job: Job) -> Artifact:
    """Run a job: sample texts from the document's start, and hold the special tokens against the training tokenizer's.

    Writes `samples.json`; counts and what is wrong are in the manifest (`export_canary`).
    """
    config = from_jsonable(ExportCanaryConfig, job.spec.config)
    exported, tokenizer = job.inputs["hf_model"], job.inputs["tokenizer"]
    assert isinstance(exported, Artifact) and isinstance(tokenizer, Artifact)
    with measuring() as cost:
        wrong = special_tokens_wrong(exported, tokenizer)
        served = open_hf_folder(exported.folder())
        room = min(config.max_new_tokens, served.config.max_seq_len)
        samples = sampling_from(served, config.samples, room, config.seed)
        with job.writing(job.spec, cost) as out:
            (out.folder / "samples.json").write_text(
                json.dumps([_describe(each) for each in samples], indent=1, ensure_ascii=False) + "\n"
            )
            ended = sum(each.finish == "stop" for each in samples)
            low, high = wilson(ended, len(samples))
            out.extra["export_canary"] = {
                "special_tokens_wrong": wrong,
                "samples": len(samples),
                "ended": ended,
                "ended_interval": [round(low, 4), round(high, 4)],
                "max_new_tokens": room,
            }
            out.record(rows_out=len(samples), tokens_out=sum(each.num_tokens for each in samples))
    return out.artifact


def special_tokens_wrong(exported: Artifact, tokenizer: Artifact) -> list[str]:
    """Describe each special token of an export that differs from training, one sentence each."""
    folder, trained = exported.folder(), tokenizer.files(TOKENIZER_FILE)[0]
    there, here = (Tokenizer.from_file(str(path)) for path in (folder / TOKENIZER_FILE, trained))
    problems = []
    if specials_of(there) != specials_of(here):
        problems.append(f"{TOKENIZER_FILE} has the special tokens {specials_of(there)}, training had {specials_of(here)}")
    if there.get_vocab() != here.get_vocab():
        problems.append(
            f"{TOKENIZER_FILE} has {there.get_vocab_size()} tokens, training had {here.get_vocab_size()}, or others"
        )
    end = int(tokenizer.manifest.extra["tokenizer"]["eos"])
    for name in (CONFIG_FILE, GENERATION_FILE):
        stated = _json(folder / name)
        ends = stated.get("eos_token_id")
        ends = ends if isinstance(ends, list) else [ends]
        if end not in ends:
            problems.append(f"{name} ends texts at {ends}; training ended documents with {end}")
        if strange := [each for each in ends if each not in specials_of(here)]:
            problems.append(f"{name} ends texts at {strange}, no special token of training")
        if stated.get("bos_token_id") not in specials_of(here):
            problems.append(f"{name} begins texts with {stated.get('bos_token_id')}, no special token of training")
    if (rows := _json(folder / CONFIG_FILE)["vocab_size"]) < there.get_vocab_size():
        problems.append(f"{CONFIG_FILE} has {rows} rows for {there.get_vocab_size()} tokens")
    templates = [path.read_bytes() for path in tokenizer.files(TEMPLATE_FILE)]
    if templates != [path.read_bytes() for path in exported.files(TEMPLATE_FILE)]:
        problems.append(f"{TEMPLATE_FILE} is not the one of training")
    return problems


def specials_of(tokenizer: Tokenizer) -> dict[int, str]:
    """Return the special tokens by id."""
    return {number: token.content for number, token in sorted(tokenizer.get_added_tokens_decoder().items()) if token.special}


def _describe(sample: Generated) -> dict[str, object]:
    return {"finish": sample.finish, "num_tokens": sample.num_tokens, "text": sample.text}


def _json(path: Path) -> Mapping[str, Any]:
    return json.loads(path.read_text())
