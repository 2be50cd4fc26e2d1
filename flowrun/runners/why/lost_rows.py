"""Findings about rows that come in and do not come out: late ones, NULL keys, filters, what cannot be read or written."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.operators.event_times import NUM_RECORDS_OUT_OF_ORDER
from flowrun.operators.keyed.key_rows import NUM_RECORDS_EXPIRED
from flowrun.operators.row_failures import FAULTS, ROWS_DEAD_LETTERED, ROWS_SKIPPED
from flowrun.operators.sink_constraints import NULL_ROWS_DROPPED
from flowrun.operators.timed.event_rows import (
    LATE_RECORDS_DROPPED,
    LATE_RECORDS_SIDE_OUTPUT,
    NULL_KEY_RECORDS_DROPPED,
)
from flowrun.operators.updating.group_aggregate import UNKNOWN_ROWS_DROPPED
from flowrun.runners.why.finding import Finding, Severity, count_text, duration_text, share_text
from flowrun.runners.why.job_view import JobView, OperatorView

NULL_KEYS = "null_keys"


def late_rows(view: JobView) -> Iterator[Finding]:
    """Operators that dropped rows because event time had passed them, or gave them to their late output."""
    for operator in view.operators:
        dropped, put_aside = operator.count(LATE_RECORDS_DROPPED), operator.count(LATE_RECORDS_SIDE_OUTPUT)
        if not dropped and not put_aside:
            continue
        delays = [
            d for s in view.sources_before(operator) if isinstance(d := s.fact("watermark.delay_ms"), int)
        ]  # of a chain of windows, too: the first one decides
        came, late = view.rows_before(operator), dropped or put_aside
        text = f"{count_text(late)} of {came:,} ({share_text(late, came)}) came when event time had passed the end of their windows."
        if delays:
            text += f" The watermarks before it let rows be {duration_text(max(delays))} late."
        yield Finding(
            "late_rows",
            Severity.LOSES if dropped else Severity.INFORMS,
            f"'{operator.name}' drops late rows" if dropped else f"'{operator.name}' puts late rows aside",
            text,
            (operator.vertex_id,),
            operator.operator_id,
            {"dropped": dropped, "put_aside": put_aside, "records_in": came},
            "let the watermark wait longer (its delay), or the windows (allowed_lateness), or keep such rows (late_output)"
            if dropped
            else None,
        )


def null_keys(view: JobView) -> Iterator[Finding]:
    """Operators that leave out rows with NULL in their keys."""
    for operator in view.operators:
        dropped, came = operator.count(NULL_KEY_RECORDS_DROPPED), operator.records_in
        if _drops_null_keys(operator):
            dropped += came - operator.records_out
        if not dropped:
            continue
        keys = ", ".join(dict.fromkeys(name for side in operator.keys for name in side))
        severity = Severity.BLOCKS if dropped >= came else Severity.LOSES if 2 * dropped >= came else Severity.INFORMS
        name = operator.name.removesuffix(f".{NULL_KEYS}")
        yield Finding(
            NULL_KEYS,
            severity,
            f"'{name}' leaves out rows whose key is NULL",
            f"{count_text(dropped)} of {came:,} ({share_text(dropped, came)}) have NULL in"
            + (f" {keys}." if keys else " a key.")
            + (" A NULL equals nothing, so a join cannot match them." if operator.inputs > 1 else ""),
            (operator.vertex_id,),
            operator.operator_id,
            {"dropped": dropped, "records_in": came, "keys": keys or None},
            "see why the key is NULL; null_keys: group makes NULL a key of its own"
            if operator.inputs < 2
            else "see why the key is NULL: a column that the input does not have is read as NULL",
        )


def _drops_null_keys(operator: OperatorView) -> bool:
    return operator.description.kind == "Calc" and operator.description.name.endswith(f".{NULL_KEYS}")


def filters(view: JobView) -> Iterator[Finding]:
    """Filters, with how many rows they leave out; those that let nothing pass are a cause."""
    for operator in view.operators:
        condition = operator.fact("condition")
        if operator.description.kind != "Calc" or condition is None or _drops_null_keys(operator):
            continue
        came, passed = operator.records_in, operator.records_out
        lost = operator.count(ROWS_SKIPPED) + operator.count(ROWS_DEAD_LETTERED)
        dropped = came - passed - lost
        if dropped <= 0:
            continue
        nothing = passed == 0
        yield Finding(
            "filter",
            Severity.BLOCKS if nothing else Severity.INFORMS,
            f"filter '{operator.name}' lets no row pass"
            if nothing
            else f"filter '{operator.name}' leaves out {share_text(dropped, came)} of its rows",
            f"{condition} was not true for {count_text(dropped)} of {came:,}.",
            (operator.vertex_id,),
            operator.operator_id,
            {"dropped": dropped, "records_in": came, "condition": str(condition)},
            "see which values the rows have: compare types, spelling and upper case; NULL is never equal to anything"
            if nothing
            else None,
        )


def bad_rows(view: JobView) -> Iterator[Finding]:
    """Operators that skip rows, or put them aside, because something about them fails."""
    for operator in view.operators:
        skipped, letters = operator.count(ROWS_SKIPPED), operator.count(ROWS_DEAD_LETTERED)
        if not skipped and not letters:
            continue
        faults = {n.removeprefix(FAULTS): c for n, c in operator.counters.items() if n.startswith(FAULTS) and c}
        why = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in faults.items())
        yield Finding(
            "bad_rows",
            Severity.LOSES,
            f"'{operator.name}' leaves out rows that fail",
            f"{count_text(skipped)} were skipped and {letters:,} became dead letters" + (f" ({why})." if why else "."),
            (operator.vertex_id,),
            operator.operator_id,
            {"skipped": skipped, "dead_letters": letters, **faults},
            "`flowrun dead-letters` shows them, with the reason of each"
            if letters
            else "on_error: dead-letter keeps such rows",
        )


def unwritten_rows(view: JobView) -> Iterator[Finding]:
    """Rows that a sink leaves out because a column of it must not be NULL, and changes that take back what nobody knows."""
    for operator in view.operators:
        nulls, unknown = operator.count(NULL_ROWS_DROPPED), operator.count(UNKNOWN_ROWS_DROPPED)
        if nulls:
            yield Finding(
                "null_rows_dropped",
                Severity.LOSES,
                f"sink '{operator.name}' leaves out rows with NULL in a NOT NULL column",
                f"{count_text(nulls)} of {operator.records_in:,} were left out.",
                (operator.vertex_id,),
                operator.operator_id,
                {"dropped": nulls, "records_in": operator.records_in},
                "let the column be NULL, or give it a value (COALESCE)",
            )
        if unknown:
            yield Finding(
                "unknown_retractions",
                Severity.INFORMS,
                f"'{operator.name}' got changes that take back rows which it does not know",
                f"{count_text(unknown)} had no group: their state has expired, or the source does not tell changes in full.",
                (operator.vertex_id,),
                operator.operator_id,
                {"dropped": unknown},
                "a longer state.ttl keeps groups longer",
            )


def expired_state(view: JobView) -> Iterator[Finding]:
    """Operators that have forgotten rows because their time to live was over."""
    for operator in view.operators:
        expired = operator.total(NUM_RECORDS_EXPIRED)
        if not expired:
            continue
        ttl = [t for n in ("ttl_ms", "left_ttl_ms", "right_ttl_ms") if isinstance(t := operator.fact(n), int) and t]
        yield Finding(
            "expired",
            Severity.INFORMS,
            f"'{operator.name}' has forgotten {count_text(expired, 'entry', 'entries')} of its state",
            "Nobody had written them for "
            + (duration_text(min(ttl)) if ttl else "their time to live")
            + (
                ", so later rows do not find them."
                if operator.inputs > 1
                else ", so later rows of their keys begin anew."
            ),
            (operator.vertex_id,),
            operator.operator_id,
            {"expired": expired, "ttl_ms": min(ttl, default=None)},
            "if rows come later than that, a longer state.ttl keeps them",
        )


def disordered_rows(view: JobView) -> Iterator[Finding]:
    """Sources whose rows break the order that their watermark promises."""
    for operator in view.operators:
        if count := operator.count(NUM_RECORDS_OUT_OF_ORDER):
            yield Finding(
                "out_of_order",
                Severity.LOSES,
                f"'{operator.name}' has rows out of order",
                f"Its watermark says that event time never goes back; it did for {count_text(count)}, which are late.",
                (operator.vertex_id,),
                operator.operator_id,
                {"records": count},
                "use a watermark with a delay that covers the disorder",
            )
