"""Findings about event time: what holds watermarks back, and what waits for them."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.runners.why.finding import Figure, Finding, Severity, count_text, duration_text, time_text
from flowrun.runners.why.job_view import JobView, OperatorView, SplitView
from flowrun.runtime.job_details import SubtaskDetails

_IDLE_REMEDY = (
    "give the watermark an idle timeout (idle_timeout of the source's watermark; scan.watermark.idle-timeout in SQL)"
)


def silent_sources(view: JobView) -> Iterator[Finding]:
    """Sources that have read nothing, and those that no longer do while something waits for their event time."""
    for source in view.sources:
        if source.records_out == 0 and _is_at_end(source):
            yield _ended_without_rows(view, source)
        running_ms = source.running_ms(view.now_ms)
        if view.is_over or running_ms is None or running_ms < view.limits.silent_ms or _is_at_end(source):
            continue
        if source.records_out == 0:
            yield _nothing_read(source, running_ms)
            continue
        splits = source.splits()
        last = max((s.last_ms for s in splits), default=None)
        waiting = view.waiting_behind(source)
        if (
            not view.has_event_time
            or last is None
            or view.now_ms - last < view.limits.silent_ms
            or not waiting
            or source.fact("bounded")
        ):
            continue
        if not any(_is_slowest(view, source, o) for o in waiting):
            continue  # it is not what they wait for
        yield _gone_silent(view, source, splits, waiting, view.now_ms - last)


def _ended_without_rows(view: JobView, source: OperatorView) -> Finding:
    nothing = all(sink.records_in == 0 for sink in view.sinks)
    return Finding(
        "empty_source",
        Severity.BLOCKS if nothing else Severity.INFORMS,
        f"source '{source.name}' came to its end without a row",
        "There was nothing to read" + (", and nothing has come out." if nothing else ".") + _left_out(source),
        (source.vertex_id,),
        source.operator_id,
        {"bad_records": source.count("numRecordsSkipped") + source.count("numRecordsDeadLettered")},
        "see whether there is something to read: the path, the bounds, and filters that leave out whole files",
    )


def _nothing_read(source: OperatorView, running_ms: int) -> Finding:
    bad = source.count("numRecordsSkipped") + source.count("numRecordsDeadLettered")
    figures: dict[str, Figure] = {"running_ms": running_ms, "bad_records": bad}
    pending = source.total("pendingRecords") if "pendingRecords" in _gauge_names(source) else None
    text = f"It runs for {duration_text(running_ms)} and has sent no row.{_left_out(source)}"
    remedy = "see whether there is something to read: the path, topic or address, and from where on it is read"
    if bad:
        text += f" {count_text(bad, 'record')} could not be read as rows and were left out."
        remedy = "see why records are no rows: the format and the schema of the source, and its dead letters"
    elif pending:
        text += f" The outside system has {count_text(pending, 'record')} for it."
        remedy = "see whether the outside system answers: the job's log has what its client says"
        figures["pending_records"] = pending
    return Finding(
        "no_input",
        Severity.BLOCKS,
        f"source '{source.name}' has read nothing",
        text,
        (source.vertex_id,),
        source.operator_id,
        figures,
        remedy,
    )


def _left_out(source: OperatorView) -> str:
    """What is said of conditions that the source knows; empty: it knows none."""
    columns = source.fact("pushed")
    if columns is None:
        return ""
    return f" It leaves out what cannot pass the conditions on {columns} behind it, without reading it: see whether they can be true."


def _gone_silent(
    view: JobView, source: OperatorView, splits: list[SplitView], waiting: list[OperatorView], silent_ms: int
) -> Finding:
    reached = max((s.watermark for s in splits if s.watermark is not None), default=None)
    who = _waiting(waiting)
    text = f"Its last row came {duration_text(silent_ms)} ago, and event time goes on with rows only. "
    text += f"It stands at {time_text(reached)}; " if reached is not None else "There is none yet; "
    text += f"{who} for it to go on."
    alone = _alone(view, source)
    return Finding(
        "source_silent",
        Severity.BLOCKS,
        f"event time stands still: source '{source.name}' sends no rows",
        text,
        (source.vertex_id, *dict.fromkeys(o.vertex_id for o in waiting)),
        source.operator_id,
        {"silent_ms": silent_ms, "watermark": reached},
        "what waits comes out when later rows arrive; windows of processing time do not wait for rows"
        if alone
        else f"so that it does not hold up the others, {_IDLE_REMEDY}",
    )


def held_back_watermarks(view: JobView) -> Iterator[Finding]:
    """Splits, and subtasks without any, that hold back the watermark of their source while something waits for it."""
    for source in view.sources:
        waiting = view.waiting_behind(source)
        if not view.has_event_time or not waiting:
            continue
        splits = source.splits()
        reached = [s.watermark for s in splits if s.watermark is not None]
        held = [s for s in splits if not s.is_idle and view.now_ms - s.last_ms >= view.limits.silent_ms]
        slowest = min(held, key=lambda s: (s.watermark is not None, s.watermark or 0, s.last_ms), default=None)
        if slowest is not None and reached:
            behind = None if slowest.watermark is None else max(reached) - slowest.watermark
            if behind is None or behind >= view.limits.behind_ms:
                yield _held_by_split(view, source, slowest, behind, max(reached), waiting)
                continue
        yield from _held_by_empty_subtasks(view, source, waiting, reached)


def _held_by_split(
    view: JobView,
    source: OperatorView,
    split: SplitView,
    behind: int | None,
    reached: int,
    waiting: list[OperatorView],
) -> Finding:
    silent_ms = view.now_ms - split.last_ms
    if behind is None:
        text = (
            f"It has sent no row since {duration_text(silent_ms)}, while the others have come to {time_text(reached)}."
        )
    else:
        text = (
            f"Its last row came {duration_text(silent_ms)} ago, at {time_text(reached - behind)} of event time;"
            f" the others have come {duration_text(behind)} further, to {time_text(reached)}."
        )
    return Finding(
        "watermark_held_back",
        Severity.BLOCKS,
        f"split '{split.name}' of source '{source.name}' holds event time back",
        f"{text} So {_waiting(waiting)}.",
        (source.vertex_id, *dict.fromkeys(o.vertex_id for o in waiting)),
        source.operator_id,
        {
            "split": split.name,
            "subtask": split.subtask,
            "split_watermark": split.watermark,
            "highest_watermark": reached,
            "behind_ms": behind,
            "silent_ms": silent_ms,
        },
        f"{_IDLE_REMEDY}, or see why nothing comes from there",
    )


def _held_by_empty_subtasks(
    view: JobView, source: OperatorView, waiting: list[OperatorView], reached: list[int]
) -> Iterator[Finding]:
    empty = [
        s.subtask
        for s, gauges in source.gauges()
        if s in source.subtasks_without_splits()
        and not gauges.get("isOutputIdle")
        and view.now_ms - s.since_ms >= view.limits.silent_ms
    ]
    if not empty or not reached or source.fact("watermark.kind") == "ingestion":
        return
    subtasks = ", ".join(map(str, empty))
    yield Finding(
        "subtask_without_split",
        Severity.BLOCKS,
        f"{'subtask' if len(empty) == 1 else 'subtasks'} {subtasks} of source '{source.name}' hold{'s' if len(empty) == 1 else ''}"
        " event time back: there is nothing to read for it",
        f"The source has {count_text(source.vertex.status.parallelism, 'subtask')} and"
        f" {count_text(source.total('numSplits'), 'split')}. Subtasks without a split send no watermark, and {_waiting(waiting)}"
        " for the slowest.",
        (source.vertex_id,),
        source.operator_id,
        {"subtasks": subtasks, "splits": source.total("numSplits")},
        f"run the source with no more subtasks than it has splits, or {_IDLE_REMEDY}",
    )


def missing_watermarks(view: JobView) -> Iterator[Finding]:
    """Sources whose rows come, but of which nobody says how far event time is, while something waits for it."""
    for source in view.sources:
        waiting = view.waiting_behind(source)
        declared = source.fact("watermark.kind") is not None
        if not view.has_event_time or declared or not waiting or source.records_out == 0 or _is_at_end(source):
            continue
        chain = [o for o in view.operators if o.vertex_id in view.before(waiting[0].vertex_id)]
        if any(o.description.kind == "TimestampsAndWatermarks" for o in chain):
            continue
        if any(source.watermark(s) is not None for s, _ in source.gauges()):
            continue
        running_ms = source.running_ms(view.now_ms)
        if running_ms is None or running_ms < view.limits.silent_ms:
            continue
        yield Finding(
            "no_watermark",
            Severity.BLOCKS,
            f"source '{source.name}' has no watermark",
            f"It has sent {count_text(source.records_out)}, but nothing says how far event time has come."
            f" {_capital(_waiting(waiting))} for it"
            + (" until the source ends." if source.fact("bounded") else " for ever."),
            (source.vertex_id, *dict.fromkeys(o.vertex_id for o in waiting)),
            source.operator_id,
            {"records": source.records_out},
            "declare a watermark of the source (watermark: {column: …, delay: …}; WATERMARK FOR … in SQL;"
            " assign_timestamps_and_watermarks in programs)",
        )


def held_back_subtasks(view: JobView) -> Iterator[Finding]:
    """Subtasks that give rows their event time, but get none: they hold back who waits for the slowest of them."""
    for operator in view.operators:
        if operator.description.kind != "TimestampsAndWatermarks" or not view.has_event_time:
            continue
        waiting = view.waiting_behind(operator)
        reached = [
            (s, operator.sent_watermark(s))
            for s, g in operator.gauges()
            if not s.is_at_end and not g.get("isOutputIdle")
        ]
        known = [w for _, w in reached if w is not None]
        silent = [s for s, w in reached if w is None]
        running_ms = operator.running_ms(view.now_ms)
        if not waiting or not known or not silent or running_ms is None or running_ms < view.limits.silent_ms:
            continue
        subtasks = ", ".join(str(s.subtask) for s in silent)
        yield Finding(
            "subtask_without_rows",
            Severity.BLOCKS,
            f"{'subtask' if len(silent) == 1 else 'subtasks'} {subtasks} of '{operator.name}' hold{'s' if len(silent) == 1 else ''}"
            " event time back",
            f"No row has come there, so it has sent no watermark; the others have come to {time_text(max(known))}."
            f" {_capital(_waiting(waiting))} for the slowest.",
            (operator.vertex_id, *dict.fromkeys(o.vertex_id for o in waiting)),
            operator.operator_id,
            {"subtasks": subtasks, "highest_watermark": max(known)},
            f"give rows their event time before they are dealt out by key, or {_IDLE_REMEDY}",
        )


def sources_behind(view: JobView) -> Iterator[Finding]:
    """Sources that still send rows, of earlier times than those of the others that they meet."""
    for operator in view.operators:
        if not view.has_event_time or operator.next_firing() is None or operator.inputs < 2:
            continue
        reached = [(w, s) for s in view.sources_before(operator) if (w := _source_watermark(s)) is not None]
        if len(reached) < 2:
            continue
        (low, slowest), (high, _) = min(reached, key=lambda r: r[0]), max(reached, key=lambda r: r[0])
        last = max((s.last_ms for s in slowest.splits()), default=0)
        if high - low < view.limits.behind_ms or view.now_ms - last >= view.limits.silent_ms:
            continue
        yield Finding(
            "source_behind",
            Severity.SLOWS,
            f"'{operator.name}' waits for source '{slowest.name}', which is {duration_text(high - low)} behind",
            f"It has come to {time_text(low)} of event time, the other to {time_text(high)}. Rows of the one that is ahead wait"
            f" in '{operator.name}' until the slower one has come as far.",
            (slowest.vertex_id, operator.vertex_id),
            operator.operator_id,
            {"source": slowest.name, "watermark": low, "other_watermark": high, "behind_ms": high - low},
            "this is so while a source catches up; if it stays so, see why that source is slower",
        )


def waiting_for_time(view: JobView) -> Iterator[Finding]:
    """Operators that let rows wait, and for which time; what has sent nothing so far is blocked by it."""
    for operator in view.operators:
        if not view.has_event_time or operator.records_in == 0:
            continue
        final = view.final(operator)
        if final is not operator and final.next_firing() is not None:
            continue  # which is told there
        severity = Severity.BLOCKS if final.records_out == 0 else Severity.INFORMS
        finding = what_waits(operator, view.now_ms, severity)
        if finding is not None:
            yield finding


def what_waits(operator: OperatorView, now_ms: int, severity: Severity) -> Finding | None:
    """For which time an operator lets rows wait; None: nothing waits in it."""
    if (next_ := operator.next_firing()) is not None:
        return _waits_for_event_time(operator, *next_, severity)
    if (next_ := operator.next_firing(processing_time=True)) is None:
        return None
    left = next_[1] - now_ms
    return Finding(
        "waits_for_clock",
        severity,
        f"'{operator.name}' waits for the clock: {time_text(next_[1])} UTC",
        f"It goes by processing time. What waits comes out then, in {duration_text(max(left, 0))}.",
        (operator.vertex_id,),
        operator.operator_id,
        {"due": next_[1], "left_ms": left},
        "nothing has to be done; shorter windows give results earlier",
    )


def _waits_for_event_time(operator: OperatorView, subtask: SubtaskDetails, due: int, severity: Severity) -> Finding:
    watermark = operator.watermark(subtask)
    window = _window(operator, due)
    text = f"The first that comes out is {window}," if window is not None else "The first rows come out"
    text += f" when event time has reached {time_text(due)}. "
    if watermark is None:
        text += "It has no event time yet: no watermark has come."
    else:
        text += f"It is at {time_text(watermark)}: {duration_text(max(due - watermark, 0))} are missing."
    size = operator.fact("window.size_ms")
    return Finding(
        "waits_for_event_time",
        severity,
        f"'{operator.name}' waits for event time",
        text,
        (operator.vertex_id,),
        operator.operator_id,
        {
            "due": due,
            "watermark": watermark,
            "missing_ms": None if watermark is None else due - watermark,
            "window_start": due + 1 - size if isinstance(size, int) else None,
            "window_end": due + 1 if isinstance(size, int) else None,
        },
        "it comes out when rows of later times arrive at all sources before it"
        + ("" if operator.records_out else "; smaller windows, or early firings, give results earlier"),
    )


def _window(operator: OperatorView, due: int) -> str | None:
    size, gap = operator.fact("window.size_ms"), operator.fact("window.gap_ms")
    end = due + 1
    if isinstance(size, int):
        return f"window [{time_text(end - size)}, {time_text(end)})"
    if isinstance(gap, int):
        return f"a session whose last row is at {time_text(end - gap)}"
    return None


def _is_slowest(view: JobView, source: OperatorView, waiting: OperatorView) -> bool:
    """Whether no other source has come less far of those that something waits for."""
    others = [s for s in view.sources_before(waiting) if s is not source and not _is_at_end(s)]
    if not others:
        return True
    splits = source.splits()
    if splits and all(s.is_idle for s in splits):
        return False  # the others go on without it
    own = _source_watermark(source)
    return own is None or all((w := _source_watermark(s)) is not None and own <= w for s in others)


def _source_watermark(source: OperatorView) -> int | None:
    """The least watermark that its subtasks have sent and wait at; None: one has none, or all are at their ends."""
    found = [source.watermark(s) for s, gauges in source.gauges() if not s.is_at_end and not gauges.get("isOutputIdle")]
    known = [w for w in found if w is not None]
    return min(known) if known and len(known) == len(found) else None


def _is_at_end(source: OperatorView) -> bool:
    return all(s.is_at_end for s in source.vertex.subtasks)


def _alone(view: JobView, source: OperatorView) -> bool:
    """Whether no other source goes into what waits for this one."""
    return all(len(view.sources_before(o)) == 1 for o in view.waiting_behind(source))


def _gauge_names(operator: OperatorView) -> set[str]:
    return {name for _, gauges in operator.gauges() for name in gauges}


def _waiting(operators: list[OperatorView]) -> str:
    """Who waits, with the verb: an aggregate before and behind an exchange is one."""
    names = list(dict.fromkeys(f"'{o.name}'" for o in operators))
    return f"{names[0]} waits" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} wait"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
