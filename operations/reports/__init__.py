"""Reports for people, made from the ledger: the week. Pages about single artifacts are not here."""
