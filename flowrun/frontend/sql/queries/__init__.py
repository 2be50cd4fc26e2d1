"""Queries: from syntax to general plan nodes, which `flowrun.plan.recognition` turns into special forms.

Each module needs only those before it: `statement_context`, `bound_queries` and `nodes` are values and what makes nodes;
`binding_context` is what all parts of one query text share, with one way to bind the queries inside it. `hints` and
`set_operations`, the room `subqueries`, the room `tables`, `grouping`, `select` and `order_and_limit` bind the parts of a query;
`binder` each form of it. `from_text` is the entry.
"""
