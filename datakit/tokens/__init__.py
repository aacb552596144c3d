"""Tokenizers and token caches: train or copy a tokenizer, check its engines, tokenize a corpus.

The format of a token cache and the order of training data belong in `lineage.order`.
"""
