"""The grammar of expressions and queries: from text to values that still know their places, before any name means anything.

`syntax` says what a query is; `dialect` reads expressions, with `call_syntax` and `qualified_calls`; on it stand
`expressions_in_queries`, `from_clause`, `queries` and `match_recognize`, in this order.
"""
