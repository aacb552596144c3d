"""datatrove's part of benchmarks/scan_speed.py, in a separate environment: its filter as shipped over some documents.

PEER/bin/python benchmarks/scan_speed_peer.py DOCUMENTS ITEMS.parquet OUT.json
"""

import json
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from datatrove.pipeline.decont import NGramsDecontFilter
from pipeline_peer import index_items, read


def main() -> None:
    documents, items, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        index_items(items, Path(folder) / "index")
        rule = NGramsDecontFilter(str(Path(folder) / "index"))
        texts = list(read(documents))
        rule.filter(texts[0])  # loads the index and spaCy's language
        started = time.process_time()
        marked = sum(rule.filter(document) is not True for document in texts)
        seconds = time.process_time() - started
    answer = {"seconds": seconds, "marked": marked, "versions": {name: version(name) for name in ("datatrove", "spacy")}}
    Path(out).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
