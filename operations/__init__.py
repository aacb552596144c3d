"""Operations: what ran, what it cost, what is kept, who is told. Plain Python over records on storage; no Dagster here.

`ledger` has tables over everything that happened and the SQL door to them. `storage` reports and purges. `alerts` tells people.
`reports` and `site` show. `scouts` look for what rots. Records of other engines are read by their formats, not by their code.
"""
