"""The language model: the protocol, layers, the decoder stack that families share, a block a family, loss and decoding.

Configs of models belong in `trainer.spec`, published forms in `trainer.hf`; the training step belongs in `trainer`.
To add a family see docs/recipes/add_a_model_family.md.
"""
