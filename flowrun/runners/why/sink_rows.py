"""Findings about rows that meet in a sink: of different rows with one key the last one counts; of superseded ones all stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flowrun.plan.superseded import SUPERSEDED_HINT
from flowrun.runners.why.finding import Finding, Severity, count_text
from flowrun.runners.why.job_view import JobView


def conflicting_keys(view: JobView) -> Iterator[Finding]:
    """Sinks that keep one row a key of rows that the query tells apart by something else."""
    for operator in view.operators:
        key, row_key = operator.fact("sink.key"), operator.fact("sink.row_key")
        if isinstance(key, str) and isinstance(row_key, str) and operator.records_in:
            found = conflicting_key(operator.name, key, row_key, operator.records_in)
            yield replace(found, vertices=(operator.vertex_id,), operator=operator.operator_id)


def conflicting_key(sink: str, key: str, row_key: str, came: int | None = None) -> Finding:
    """That a sink keeps one row of several.

    Args:
        sink: its name.
        key: its key, names of columns.
        row_key: by which the rows differ; empty: by nothing that is known.
        came: how many rows and changes have come; None: that is not known.
    """
    differ = f"differ by {row_key}" if row_key else "are not known to differ by anything"
    text = f"Its key is {key}, and the rows that reach it {differ}. Of those that have one key it keeps the one that came last, "
    text += "and a deletion removes that, whichever was deleted."
    if came is not None:
        text += f" {count_text(came, 'row or change', 'rows and changes')} {'has' if came == 1 else 'have'} come."
    return Finding(
        "conflicting_keys",
        Severity.INFORMS,
        f"sink '{sink}' keeps the last of the rows that have one key",
        text,
        figures={"key": key, "row_key": row_key or None, "records_in": came},
        remedy="if each key is to have one row by itself, group by it, or say what becomes of the others: INSERT … ON CONFLICT DO ERROR, "
        "NOTHING or DEDUPLICATE",
    )


def superseded_rows(view: JobView) -> Iterator[Finding]:
    """Sinks of files that keep each result of windows that fire again."""
    for operator in view.operators:
        reason = operator.fact("sink.superseded")
        if isinstance(reason, str) and operator.records_in:
            yield Finding(
                "superseded_rows",
                Severity.INFORMS,
                f"sink '{operator.name}' keeps superseded rows",
                f"{reason[:1].upper()}{reason[1:]}, and each result is a row of its own. {count_text(operator.records_in)} "
                f"{'has' if operator.records_in == 1 else 'have'} come.",
                (operator.vertex_id,),
                operator.operator_id,
                {"records_in": operator.records_in},
                SUPERSEDED_HINT,
            )
