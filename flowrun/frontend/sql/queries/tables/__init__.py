"""The tables of FROM: each kind of table expression → a relation.

Each module needs only those before it: `from_context`, `catalog_tables`, `joins`, `lateral`, `arguments`, `windows`,
`changelog_functions`, `process_functions` and `match_recognize` bind one kind each; `from_clause` goes through FROM and asks them.
"""
