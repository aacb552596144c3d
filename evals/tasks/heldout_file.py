"""Write held-out text to the file that a run reads to evaluate during training (`MARIN_EVAL`, `trainer.tagged`).

The documents, their tags and their cuts are those of the perplexity task, so the run's bits per byte are that task's.
"""

import json
from collections.abc import Iterator, Sequence

from tokenizers import Tokenizer

from evals.items.stage import TaskSpec
from evals.tasks.perplexity import heldout_documents
from lineage.artifact.store import Artifact


def heldout_lines(corpora: Sequence[Artifact], tokenizer: Tokenizer, start_token: int, task: TaskSpec) -> Iterator[str]:
    """Write one JSON line a document: tags, tokens (the first opens the text), bytes. Raises: ValueError without documents."""
    documents = heldout_documents(corpora, task)
    if not documents:
        raise ValueError(f"task {task.name}: the corpora hold no held-out document")
    encoded = tokenizer.encode_batch_fast([document.text for document in documents], add_special_tokens=False)
    for document, encoding in zip(documents, encoded, strict=True):
        record = {"tags": [document.tag], "tokens": [start_token, *encoding.ids], "bytes": len(document.text.encode())}
        yield json.dumps(record)
