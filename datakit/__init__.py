"""The data engine: it turns pinned files into documents, marks, a corpus, a tokenizer and token caches. Each stage is a
module.

Code that reads, judges or rewrites text belongs here. Where artifacts lie belongs in `lineage`; which sources and
thresholds the lab uses belongs in `recipes`; when stages run belongs in the shell. The engine runs without Dagster.
Read the stages in the order of the pipeline: `raw`, `normalize`, `minhash`, `duplicates`, `quality`, `contamination`,
`corpus`, `tokenizer`, `token_cache`.
"""
