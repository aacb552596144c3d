"""The lab's public site: static pages about every artifact, run and sweep, made only from the stores.

    store_reader    manifests, costs, verdicts and incidents of some stores, as one record
    content         the content of a page: plain records, without markup
    artifact_pages  a page for an artifact; `group_pages`: for a run and a sweep; `list_pages`: indexes
    veil            what must not be shown
    html, pictures  records to markup
    build           writes what changed

Only `html` and `pictures` write markup, and they escape every text.
"""
