"""Subqueries of expressions and LATERAL queries as joins.

Each module needs only those before it: `dependent_joins`, `decorrelation`, `values`, `planner`, `outer_joins`.
"""
