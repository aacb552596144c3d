"""Marks of data whose manifest is in the trash of a purge; data that a killed writer left has none."""

MARK = "trashed-"


def in_trash(data_folder: str) -> str:
    """Return the name of the folder beside a data folder that exists while the trash has the data's manifest.

    A commit lists the folders of its address anyway, so it sees the mark without another request.
    """
    return f"{MARK}{data_folder}"
