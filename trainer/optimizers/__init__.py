"""Update rules: one module a family, formula and source in every docstring, `build.py` puts them together.

A rule gives a *direction*: parameters move by minus the learning rate times it. The rate is a function of the step and no part
of a rule's state, which stands still on a skipped step; a rule whose direction depends on it gets it as the argument `rate`.
"""
