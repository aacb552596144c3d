"""The asset graph: thin assets over the nodes that `recipes` declares and the engines build.

Belongs here: asset factories, their checks, metadata and descriptions. Does not belong here: any computation on text,
tokens or arrays (the engines), or any choice of what exists (recipes). Start in `definitions.py`, then `factory.py`.
"""
