"""Ask a model for the label of documents, and read its answers as rows.

A document is data. The model's own words alone are read, and what could look like an answer or end the document is broken up
in the document before the model sees it, so that a model that quotes a document does not state the document's answer.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from datakit.quality.labels import LABELS_SCHEMA
from lineage.shards.run import SCRATCH_FOLDER
from post_training.labels.spec import DOCUMENT, LabelsConfig
from post_training.synthetic.teacher import CHAT, COMPLETIONS
from serving.answer_versions import named_version
from serving.broker.client import ItemRequest, Record, Recorded, ask_all

_STATED = re.compile(r"\[\[\s*([^\[\]]*?)\s*\]\]")
_MARKS = re.compile(r"\[(?=\[)|\](?=\])|<(?=\s*/?\s*document)", re.IGNORECASE)


def ask_unit(
    folder: Path, config: LabelsConfig, documents: Sequence[tuple[str, str]], prior: Mapping[str, float] | None
) -> dict[str, Any]:
    """Label (id, text) and write a table of `LABELS_SCHEMA`. Returns the versions of the model that answered.

    `prior`: log-likelihood of each answer to an empty document. Raises: what `ask_all` raises.
    """
    read = _stated if config.reading == "stated" else _likeliest
    requests = [one for identity, text in documents for one in requests_of(config, identity, text)]
    answers = _asked(config, requests)
    by_document = {identity: [answers[one.item] for one in requests_of(config, identity, "")] for identity, _ in documents}
    rows = [{"id": identity} | read(config, by_document[identity], prior) for identity, _ in documents]
    (folder / SCRATCH_FOLDER).mkdir()
    pl.DataFrame(rows, schema=LABELS_SCHEMA).write_parquet(folder / SCRATCH_FOLDER / f"{documents[0][0]}.parquet")
    good = (recorded for recorded in answers.values() if recorded.status == 200)
    return {"versions": sorted({named_version(recorded.answer) or "" for recorded in good})}


def prior_of(config: LabelsConfig) -> dict[str, float] | None:
    """Return the log-likelihood of each answer to an empty document; None if the labels do not ask for it.

    Raises: ValueError if the server refuses the question.
    """
    if not config.without_prior:
        return None
    answers = _asked(config, requests_of(config, "", ""))
    if refused := [recorded for recorded in answers.values() if recorded.status != 200]:
        raise ValueError(f"{config.name}: {config.model.url} refuses an empty document: {_refusal(refused[0])}")
    return log_likelihoods(config, list(answers.values()))


def prompt_of(config: LabelsConfig, text: str) -> str:
    """Return the prompt with a document in it, cut to `max_chars`. `[[`, `]]` and the tag `document` are broken up in it.

    The spaces that break them count as characters of no document.
    """
    return config.prompt.replace(DOCUMENT, _MARKS.sub(r"\g<0> ", text[: config.max_chars]))


def requests_of(config: LabelsConfig, identity: str, text: str) -> list[ItemRequest]:
    """Return the requests about one document: one, or one for each answer."""
    prompt, how = prompt_of(config, text), {"model": config.model.model, "temperature": 0}
    if config.reading == "likelihood":
        scored = how | {"max_tokens": 0, "echo": True, "logprobs": 1}
        bodies = [(answer, scored | {"prompt": f"{prompt} {answer}"}) for answer in config.answers]
        return [ItemRequest(f"{identity}/{answer}", COMPLETIONS, body) for answer, body in bodies]
    how |= {"max_tokens": config.max_tokens}
    if config.model.form == "chat":
        return [ItemRequest(identity, CHAT, how | {"messages": [{"role": "user", "content": prompt}]})]
    return [ItemRequest(identity, COMPLETIONS, how | {"prompt": prompt})]


def log_likelihoods(config: LabelsConfig, answers: Sequence[Recorded]) -> dict[str, float]:
    """Return answer -> its log-likelihood behind what all requests have in common, which their tokens show.

    Raises: ValueError if the server did not return the log-probabilities of the whole prompts.
    """
    scored = [recorded.answer["choices"][0].get("logprobs") or {} for recorded in answers]
    tokens = [list(each.get("tokens") or ()) for each in scored]
    common = next((place for place, column in enumerate(zip(*tokens, strict=False)) if len(set(column)) > 1), 0)
    tails = [list(each.get("token_logprobs") or ())[common:] for each in scored]
    if not common or any(None in tail for tail in tails):
        raise ValueError(
            f"{config.model.url} did not return the log-probabilities of prompts of {config.name}; a server must echo them "
            "(max_tokens: 0, echo: true, logprobs: 1)"
        )
    return {answer: float(np.sum(tail)) for answer, tail in zip(config.answers, tails, strict=True)}


def stated_answer(config: LabelsConfig, words: str) -> tuple[str | None, str]:
    """Return the one allowed answer that a model states, or None and why there is none."""
    stated = list(dict.fromkeys(_STATED.findall(words)))
    if not stated:
        return None, "no answer"
    if len(stated) > 1:
        return None, f"several answers: {', '.join(stated)}"[:200]
    return (stated[0], "") if stated[0] in config.answers else (None, f"not an allowed answer: {stated[0]}"[:200])


def _stated(config: LabelsConfig, answers: Sequence[Recorded], _: Mapping[str, float] | None) -> dict[str, Any]:
    (recorded,) = answers
    if recorded.status != 200:
        return _faulty(_refusal(recorded))
    choice = recorded.answer["choices"][0]
    words = (choice["message"]["content"] if config.model.form == "chat" else choice["text"]) or ""
    label, fault = stated_answer(config, words)
    return {"label": label, "probability": None, "words": words, "fault": fault}


def _likeliest(config: LabelsConfig, answers: Sequence[Recorded], prior: Mapping[str, float] | None) -> dict[str, Any]:
    if refused := [recorded for recorded in answers if recorded.status != 200]:
        return _faulty(_refusal(refused[0]))
    found = log_likelihoods(config, answers)
    logits = np.array([found[answer] - (prior[answer] if prior else 0.0) for answer in config.answers])
    odds = np.exp(logits - logits.max())
    probabilities = {answer: round(float(odd / odds.sum()), 6) for answer, odd in zip(config.answers, odds, strict=True)}
    label = config.answers[int(logits.argmax())]
    words = json.dumps(probabilities, ensure_ascii=False)
    return {"label": label, "probability": probabilities[label], "words": words, "fault": ""}


def _faulty(fault: str) -> dict[str, Any]:
    return {"label": None, "probability": None, "words": "", "fault": fault}


def _refusal(recorded: Recorded) -> str:
    return f"refused with {recorded.status}: {recorded.answer}"[:500]


def _asked(config: LabelsConfig, requests: Sequence[ItemRequest]) -> dict[str, Recorded]:
    with TemporaryDirectory(prefix="labels-") as folder:
        record, how = Record(Path(folder) / "answers.jsonl"), {"concurrency": config.concurrency}
        return ask_all(config.model.url, requests, record, patience=config.patience_seconds, **how)
