"""Scenarios: what happened once, played again through the lab's real parts.

They are the outermost shell: they may import everything, nothing imports them. Each runs small in the tests and larger by a
make target, in a root of its own.
"""
