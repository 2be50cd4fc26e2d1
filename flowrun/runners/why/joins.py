"""Findings about joins that give nothing: a side without rows, rows without matches."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.operators.joins.factories import LEFT, RIGHT
from flowrun.operators.joins.unmatched import NUM_RECORDS_UNMATCHED, NUM_RECORDS_UNMATCHED_ON_ARRIVAL
from flowrun.runners.why.finding import Finding, Severity, count_text, share_text
from flowrun.runners.why.job_view import JobView, OperatorView

_KINDS = frozenset({"RegularJoin", "WindowJoin", "IntervalJoin", "TemporalJoin", "LookupJoin"})
_SIDES = {LEFT: "left", RIGHT: "right"}
_MANY = 0.5


def empty_sides(view: JobView) -> Iterator[Finding]:
    """Joins that have rows on one side only and send nothing."""
    for join in _joins(view):
        if join.inputs != 2 or join.records_out:
            continue
        rows = join.input_records(1), join.input_records(2)
        running_ms = join.running_ms(view.now_ms)
        if not view.is_over and (running_ms is None or running_ms < view.limits.silent_ms):
            continue
        if (rows[LEFT] == 0) == (rows[RIGHT] == 0):
            continue
        empty = LEFT if rows[LEFT] == 0 else RIGHT
        sources = _sources_of_input(view, join, empty)
        yield Finding(
            "join_side_empty",
            Severity.BLOCKS,
            f"the {_SIDES[empty]} side of join '{join.name}' has had no rows",
            f"{count_text(rows[1 - empty])} came on the {_SIDES[1 - empty]} side and found nothing to be joined with."
            + (f" The {_SIDES[empty]} side comes from {sources}." if sources else ""),
            (join.vertex_id,),
            join.operator_id,
            {"left_records": rows[LEFT], "right_records": rows[RIGHT]},
            f"see why no rows come on the {_SIDES[empty]} side; an outer join sends rows without a match as well",
        )


def unmatched_rows(view: JobView) -> Iterator[Finding]:
    """Joins whose rows find no match."""
    for join in _joins(view):
        exact = tuple(join.count(NUM_RECORDS_UNMATCHED[side]) for side in (LEFT, RIGHT))
        early = tuple(join.count(NUM_RECORDS_UNMATCHED_ON_ARRIVAL[side]) for side in (LEFT, RIGHT))
        rows = (join.input_records(1), join.input_records(2)) if join.inputs == 2 else (join.records_in, 0)
        both = join.inputs != 2 or all(rows)
        if not both or not any((*exact, *early)):
            continue
        is_lookup = join.description.kind == "LookupJoin"
        if join.records_out == 0:
            if _has_open_windows(join) and not all(exact):
                continue
            yield _nothing_matches(join, rows, exact if any(exact) else early, later=not any(exact))
        elif any(exact):
            told = [LEFT] if is_lookup or join.description.kind == "TemporalJoin" else [LEFT, RIGHT]
            worst = max(told, key=lambda side: exact[side] / max(rows[side], 1))
            if exact[worst] / max(rows[worst], 1) >= _MANY:
                yield _many_unmatched(join, rows, exact[worst], worst)


def _nothing_matches(join: OperatorView, rows: tuple[int, int], unmatched: tuple[int, ...], *, later: bool) -> Finding:
    keys = " = ".join(", ".join(side) for side in join.keys if side)
    condition = join.fact("condition")
    text = (
        f"{count_text(rows[LEFT])} came on the left side and {count_text(rows[RIGHT])} on the right, and no two of them match."
        if join.inputs == 2
        else f"{count_text(rows[LEFT])} came, and for none of them the table has a row."
    )
    text += f" They are joined by {keys}." if keys else ""
    text += f" Beside the keys, {condition} has to hold." if condition is not None else ""
    text += " Rows that come later may still match." if later else ""
    return Finding(
        "join_without_matches",
        Severity.BLOCKS,
        f"no rows match in join '{join.name}'",
        text,
        (join.vertex_id,),
        join.operator_id,
        {
            "left_records": rows[LEFT],
            "right_records": rows[RIGHT],
            "left_unmatched": unmatched[LEFT],
            "right_unmatched": unmatched[RIGHT],
        },
        "compare the keys of both sides: spelling, upper case, blanks, units"
        + ("; and their times: does the interval or the window hold rows of both?" if _is_timed(join) else ""),
    )


def _many_unmatched(join: OperatorView, rows: tuple[int, int], unmatched: int, side: int) -> Finding:
    share = share_text(unmatched, rows[side])
    return Finding(
        "join_unmatched_rows",
        Severity.INFORMS,
        f"{share} of the rows on the {_SIDES[side]} side of join '{join.name}' have no match",
        f"{count_text(unmatched)} of {rows[side]:,} found nothing to be joined with; {count_text(join.records_out)} came out.",
        (join.vertex_id,),
        join.operator_id,
        {"side": _SIDES[side], "unmatched": unmatched, "records_in": rows[side], "records_out": join.records_out},
        None,
    )


def _joins(view: JobView) -> list[OperatorView]:
    return [o for o in view.operators if o.description.kind in _KINDS]


def _has_open_windows(join: OperatorView) -> bool:
    """Whether it joins whole windows, and has rows of some that are not over: those have not been looked at."""
    return join.description.kind == "WindowJoin" and join.next_firing() is not None


def _is_timed(join: OperatorView) -> bool:
    return join.description.kind in ("WindowJoin", "IntervalJoin", "TemporalJoin")


def _sources_of_input(view: JobView, join: OperatorView, side: int) -> str:
    vertices: set[str] = set()
    for exchange in view.inputs(join.vertex_id):
        if exchange.input_index == side:
            vertices |= view.before(exchange.source)
    names = [f"source '{s.name}'" for s in view.sources if s.vertex_id in vertices]
    return " and ".join(names)
