"""Operations: what ran, what it cost, what is kept, alerts. Plain Python over records on storage; no Dagster here.

`ledger` has tables over everything that happened and answers SQL. `storage` plans and carries out purges. `alerts` turns
findings into incidents and sends them. `scouts` look for what rots, every night. `site` writes
the public site. `reports` writes the weekly report.
"""
