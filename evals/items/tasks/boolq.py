"""BoolQ (Clark et al. 2019, arXiv:1905.10044): yes/no questions about a passage of Wikipedia."""

from collections.abc import Iterator
from pathlib import Path

from evals.items.files import choice_channels, first_requests, table_rows
from evals.items.item import Item
from evals.items.rendering import lettered, prompted, styles
from evals.items.task import Channels, Task


def _head(item: Item) -> str:
    return f"{item.passage}\nQuestion: {item.question}"


def _prompt(item: Item) -> str:
    return f"{_head(item)}\nAnswer:"


def read_boolq_requests(path: Path) -> Iterator[Channels]:
    """OLMES requests. `query` is "<title> -- <passage>\\nQuestion: <question>?\\nAnswer:"."""
    for record in first_requests(path):
        doc = record["doc"]
        passage, _, question = doc["query"].removesuffix("\nAnswer:").rpartition("\nQuestion: ")
        if not passage:
            raise KeyError(f"no passage in item {record['doc_id']}")
        yield choice_channels(f"{record['doc_id']:04d}", question, doc["choices"], doc["gold"]) | {"passage": passage}


def read_boolq_rows(path: Path) -> Iterator[Channels]:
    """Yield the hub's table. Its questions have no question mark; the request files have one, so it is added here."""
    for row, record in enumerate(table_rows(path)):
        question = f"{record['question'].strip().removesuffix('?')}?"
        yield choice_channels(f"{row:04d}", question, ["yes", "no"], int(not record["answer"])) | {"passage": record["passage"]}


BOOLQ = Task(
    "boolq",
    styles(cloze=prompted(_prompt), letters=lettered(_head)),
    formats={"boolq_requests": read_boolq_requests, "boolq_rows": read_boolq_rows},
)
