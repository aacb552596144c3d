"""The data order: token caches, mixtures, packing, and the map from a training step to documents and back.

Tokenizing documents belongs in `datakit.tokens`; reading batches during training belongs in `trainer`.
"""
