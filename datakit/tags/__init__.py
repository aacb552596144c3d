"""Tags of documents: attribute tables with one word a document, which a corpus may filter by."""
