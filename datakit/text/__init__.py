"""Fast operations on text: compiled loops, code points, canonical forms, words, shingles and n-grams.

Nothing here knows stages or artifacts. Code that reads or writes artifacts belongs in the package that uses it.
"""
