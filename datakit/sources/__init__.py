"""Where raw files come from: source records, download clients, and the stage that stores files as fetched.

Code that looks inside a file belongs in `datakit.readers`; the catalogue of sources belongs in `recipes`.
"""
