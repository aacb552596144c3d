"""The stage `datakit.contamination_index`: benchmark items as an index that every source is scanned with.

It is an artifact of its own because it depends on the items and the policy only. It is built once and not once a source
(2 s of 3.5 s for each of the ferry's eight sources, 2026-11-21).
"""

from pathlib import Path

from datakit.contamination.channels import read_suite_items
from datakit.contamination.measure_recall import measure_recall
from datakit.contamination.protocol import Policy
from lineage.artifact.store import Artifact
from lineage.config import to_jsonable
from lineage.stage import Stage
from lineage.writing.writer import Writer

_FOLDER = "index"


def build_contamination_index(
    out: Writer, config: Policy, suites: tuple[Artifact, ...], clean: tuple[Artifact, ...] = ()
) -> None:
    """Write `index/**/*.npy`: the arrays of the policy's index.

    `clean`: normalized sources that are known to hold no item. `extra["proof"]` is the result of
    `contamination_proof.prove`.

    Raises: ValueError if the suites hold no item, or one item twice.
    """
    items = read_suite_items(suites)
    channels = config.channels(items)
    index = config.index(items, channels)
    index.save(out.folder / _FOLDER)
    out.extra["proof"] = measure_recall(items, channels, index, clean)
    out.record(rows_in=len(items), rows_out=len(items), drops={})


CONTAMINATION_INDEX = Stage(
    "datakit.contamination_index",
    "12",
    build_contamination_index,
    description="Grams of the items, weighted by how many items share them. Sources are scanned with it.",
    checks=("file_set",),
)
"""12: different long words are kept, short questions are placed with their answers. 11: questions are placed by shorter
seeds too, where their answer follows. 10: channels of up to 128 words are aligned, those of few different words are not; a
run of 20 words is `partial`. 9: HTML entities are their characters. 8: tier `partial`. 7: invisible characters are absent.
6: recall in all sixteen forms. 5: recall by task and false marks on clean text are kept with it. 4: one file for each
array, which workers map.
"""


def index_folder(index: Artifact, config: Policy, suites: tuple[Artifact, ...]) -> Path:
    """Return the folder that `load_index` reads. Raises: ValueError if the index is of another policy or of other
    suites.
    """
    if index.spec.config != to_jsonable(config):
        raise ValueError(f"{index.name} was built for {index.spec.config}, the scan asks for {to_jsonable(config)}")
    held = {ref.data_version for ref in index.spec.inputs if ref.name.partition(".")[0] == "suites"}
    wanted = {suite.data_version: suite.name for suite in suites}
    if held != wanted.keys():
        raise ValueError(f"{index.name} was not built from exactly {', '.join(wanted.values())}: materialize it from them")
    return index.folder() / _FOLDER
