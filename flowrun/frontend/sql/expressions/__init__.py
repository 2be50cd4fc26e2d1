"""Expressions: from syntax trees to typed trees in which every conversion is explicit.

Each module needs only those before it: `scope`, `pending`, `trees` and `relations` are values; `binder_core`, `special_calls`,
`literals` and `binder` bind what may stand in any expression; `from_text` binds one that is no part of a query. Expressions of queries
hold more: `aggregate_calls`, `user_functions`, `derived_aggregates`, `ordered_aggregates`, `query_aggregates` and `over` are their calls,
`query_expressions` binds them. What is still pending in their trees, the planning of queries replaces.
"""
