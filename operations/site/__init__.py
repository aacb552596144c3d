"""The lab's public site: static pages about every artifact, run and sweep, made from the stores alone.

    store_reader    manifests, costs, verdicts and incidents of some stores, as one record
    content         what a page holds: plain records, without markup
    artifact_pages  a page for an artifact; `group_pages`: for a run and a sweep; `list_pages`: indexes
    veil            what must not be shown
    html, pictures  records to markup
    build           writes what changed

No module but `html` and `pictures` writes markup, and every text that they write is escaped there.
"""
