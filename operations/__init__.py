"""Operations: what ran, what it cost, what is kept, alerts. Plain Python over records on storage; no Dagster here.

`ledger` has tables over everything that happened and answers SQL. `storage` plans and carries out purges. `alerts` turns
findings into incidents and sends them. `scouts` look every night for what needs maintenance. `site` writes the public site.
`reports` writes the weekly report.
"""
