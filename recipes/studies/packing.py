"""Documents packed into sequences without cuts; attention stays inside a document."""

from dataclasses import replace

from lineage.order.packing import Packing
from recipes.records.run import Run
from recipes.studies.default import tiny
from recipes.study import Study


def study() -> Study:
    return Study("What do whole documents change?", runs=(tiny_packed,))


def tiny_packed() -> Run:
    """`tiny` over packed documents: none that fits into a sequence is cut."""
    base = tiny()
    spec = replace(base.spec, name="tiny_packed", cross_document_attention=False)
    return replace(base, spec=spec, data=replace(base.data, name="default-packed", packing=Packing(spec.seq_len)))
