"""Optimizers: one module per family of rules, with formula and source in every docstring. `build.py` combines them.

A rule returns a *direction*: parameters change by minus the learning rate times the direction. The rate is a function
of the step and not part of a rule's state, which does not change on a skipped step; a rule that needs the rate gets it
as the argument `rate`. To add an optimizer see docs/recipes/add_an_optimizer.md.
"""
