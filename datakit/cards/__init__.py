"""Write the data card of a source: one page with its counts, pictures and samples.

A card only reads what other stages recorded. New measurements belong in the stage that makes them.
"""
