"""The grammar of expressions and queries: from text to values that still know their places, before any name means anything.

Each module needs only those before it: `syntax` says what a query is, `tokens` what its text is made of; `token_reader` goes through
them, and `sqlglot_reader` does so in turns with sqlglot's parser. On it stand `call_syntax`, `expressions`,
`expressions_in_queries`, `from_clause`, `queries`, and `match_recognize` and `tables_named`.
"""
