"""Findings about a job as a whole: what it waits for, restarts, checkpoints, where rows are slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowrun.runners.why.finding import Figure, Finding, Severity, count_text, duration_text
from flowrun.runners.why.job_view import JobView, OperatorView
from flowrun.runtime.checkpoint.records import COMPLETED, FAILED, IN_PROGRESS, CheckpointRecord
from flowrun.runtime.job_details import VertexDetails

_SLOW_CHECKPOINT_MS = 60_000


def waits_for_slots(view: JobView) -> Iterator[Finding]:
    """A job that has not begun, or a stage of it."""
    status = view.details.status
    if status.waits_for and not view.is_over:
        yield Finding(
            "waits_for_slots",
            Severity.BLOCKS,
            "the job waits before it can run",
            f"It waits for {status.waits_for}.",
            figures={"slots": status.slots},
            remedy="give the cluster more slots, stop another job, or run this one with less parallelism",
        )


def failures(view: JobView) -> Iterator[Finding]:
    """What has failed: the failure that ended the job, or made it restart."""
    status, known = view.details.status, view.details.failures
    if not known:
        return
    last = known[-1]
    cause = last.error.links[-1] if last.error.links else None
    ended = last.outcome == "failed"
    restarts = status.restarts
    text = f"At last, {last.place}" + (f": {cause.message}." if cause is not None else ".")
    text += f" {last.why_failed[:1].upper()}{last.why_failed[1:]}." if last.why_failed else ""
    if not ended:
        text += f" It began again from the newest checkpoint {count_text(restarts, 'time')}."
        if not any(c.status == COMPLETED for c in view.details.checkpoints):
            text += " No checkpoint is complete, so it began at the beginning."
    yield Finding(
        "failed" if ended else "restarts",
        Severity.BLOCKS if ended or last.at_ms >= view.now_ms - 60_000 else Severity.INFORMS,
        "the job has failed" if ended else f"the job has restarted {count_text(restarts, 'time')}",
        text.replace("..", "."),
        (last.vertex_id,) if last.vertex_id else (),
        None,
        {"restarts": restarts, "failures": len(known), "at": last.at_ms, "operator": last.operator},
        (cause.hint if cause is not None else None)
        or "mend what failed; on_error: dead-letter lets a job go on without rows that fail",
    )


def checkpoints(view: JobView) -> Iterator[Finding]:
    """Checkpoints that fail, and why; one that does not come to its end."""
    known = view.details.checkpoints
    ended = [c for c in known if c.status in (COMPLETED, FAILED)]
    failed = [c for c in ended if c.status == FAILED]
    trailing = _trailing_failures(ended)
    if trailing:
        sinks = _sinks_that_commit(view)
        text = f"The last {count_text(len(trailing), 'checkpoint')} failed. The newest: {trailing[-1].failure}."
        if sinks:
            text += (
                f" {_listed(sinks)} shows rows when a checkpoint is complete, so none of the rows since can be seen."
            )
        text += " After a failure the job would go back to " + (
            "the last one that is complete." if any(c.status == COMPLETED for c in known) else "its beginning."
        )
        yield Finding(
            "checkpoints_fail",
            Severity.BLOCKS if sinks else Severity.RISKS,
            "checkpoints fail",
            text.replace("..", "."),
            figures={
                "failed": len(trailing),
                "failure": trailing[-1].failure,
                "checkpoint": trailing[-1].checkpoint_id,
            },
            remedy="see the reason; where one takes too long, a longer checkpoint timeout or unaligned checkpoints help",
        )
    elif failed:
        yield Finding(
            "checkpoints_failed",
            Severity.INFORMS,
            f"{count_text(len(failed), 'checkpoint')} failed, later ones did not",
            f"The newest that failed, number {failed[-1].checkpoint_id}: {failed[-1].failure}.".replace("..", "."),
            figures={"failed": len(failed), "failure": failed[-1].failure, "checkpoint": failed[-1].checkpoint_id},
        )
    yield from _slow_checkpoints(view)


def _trailing_failures(ended: Sequence[CheckpointRecord]) -> list[CheckpointRecord]:
    found: list[CheckpointRecord] = []
    for checkpoint in reversed(ended):
        if checkpoint.status != FAILED:
            break
        found.insert(0, checkpoint)
    return found


def _slow_checkpoints(view: JobView) -> Iterator[Finding]:
    interval = view.details.settings.get("checkpoint.interval_ms")
    limit = max(_SLOW_CHECKPOINT_MS, int(interval)) if isinstance(interval, int | float) else _SLOW_CHECKPOINT_MS
    for checkpoint in view.details.checkpoints:
        if view.is_over or checkpoint.status != IN_PROGRESS or checkpoint.duration_ms < limit:
            continue
        taken = {v.vertex_id: v.acknowledged for v in checkpoint.vertices}
        late = [v for v in view.details.vertices if taken.get(v.status.vertex_id, 0) < v.status.parallelism]
        yield Finding(
            "checkpoint_slow",
            Severity.RISKS,
            f"checkpoint {checkpoint.checkpoint_id} is under way for {duration_text(checkpoint.duration_ms)}",
            f"{checkpoint.acknowledged} of {count_text(checkpoint.subtasks, 'subtask')} have written their part. It waits for"
            f" {', '.join(_quoted(v) for v in late[:3]) or 'the others'}: barriers wait in line behind rows where there is back"
            " pressure.",
            tuple(v.status.vertex_id for v in late),
            None,
            {"duration_ms": checkpoint.duration_ms, "acknowledged": checkpoint.acknowledged},
            "relieve what is slow, or let barriers overtake rows (unaligned checkpoints)",
        )


def unseen_rows(view: JobView) -> Iterator[Finding]:
    """Sinks that have rows which become visible with the next checkpoint only, and there was none yet."""
    interval = view.details.settings.get("checkpoint.interval_ms")
    if view.is_over or interval is None or any(c.status == COMPLETED for c in view.details.checkpoints):
        return
    if _trailing_failures([c for c in view.details.checkpoints if c.status in (COMPLETED, FAILED)]):
        return  # which is said already
    for sink in _sinks_that_commit(view):
        if sink.records_in:
            yield Finding(
                "waits_for_checkpoint",
                Severity.BLOCKS,
                f"rows of sink '{sink.name}' become visible with the first checkpoint",
                f"It has taken {count_text(sink.records_in)}. It shows them when a checkpoint is complete, so that each is there once;"
                f" there is one every {duration_text(float(str(interval)))}, and none is complete yet.",
                (sink.vertex_id,),
                sink.operator_id,
                {"records": sink.records_in, "interval_ms": interval},
                "wait for it, or make the checkpoint interval shorter",
            )


def _sinks_that_commit(view: JobView) -> list[OperatorView]:
    return [s for s in view.sinks if s.fact("delivery") == "exactly_once"]


def bottleneck(view: JobView) -> Iterator[Finding]:
    """The vertex for which others wait: what is before it is back-pressured, it is not."""
    if view.is_over:
        return
    limit = view.limits.back_pressured_ms_per_s
    pressed = {v.status.vertex_id: v for v in view.details.vertices if v.status.max_back_pressured_ms_per_s >= limit}
    for vertex in view.details.vertices:
        before = [e.source for e in view.inputs(vertex.status.vertex_id) if e.source in pressed]
        if not before or vertex.status.vertex_id in pressed:
            continue
        waiting = max(pressed[source].status.max_back_pressured_ms_per_s for source in before)
        busiest = max(vertex.subtasks, key=lambda s: s.busy_ms_per_s)
        figures: dict[str, Figure] = {
            "busy_ms_per_s": busiest.busy_ms_per_s,
            "subtask": busiest.subtask,
            "back_pressured_ms_per_s": waiting,
        }
        sinks = [o for o in vertex.operators if o.is_sink]
        yield Finding(
            "bottleneck",
            Severity.SLOWS,
            f"{_quoted(vertex)} is the bottleneck",
            f"What sends to it waits for room {waiting / 10:.0f} % of the time; its busiest subtask ({busiest.subtask}) works"
            f" {busiest.busy_ms_per_s / 10:.0f} % of the time.",
            (vertex.status.vertex_id, *before),
            None,
            figures,
            "give it more subtasks"
            + (", or see whether the system behind its sink is slow" if sinks else ", or make what it does cheaper"),
        )
        return
    yield from list(_busy_chains(view)) or _saturated_vertex(view)


def _busy_chains(view: JobView) -> Iterator[Finding]:
    """Sources that fall behind because the chain that they head works all the time."""
    for source in view.sources:
        pending = source.total("pendingRecords")
        busiest = max(source.vertex.subtasks, key=lambda s: s.busy_ms_per_s)
        if not pending or busiest.busy_ms_per_s < view.limits.busy_ms_per_s:
            continue
        yield Finding(
            "bottleneck",
            Severity.SLOWS,
            f"{_quoted(source.vertex)} is the bottleneck",
            f"It works {busiest.busy_ms_per_s / 10:.0f} % of the time, and {count_text(pending, 'record')} wait in the system that it"
            " reads.",
            (source.vertex_id,),
            source.operator_id,
            {"busy_ms_per_s": busiest.busy_ms_per_s, "pending_records": pending, "subtask": busiest.subtask},
            "give the source more subtasks, up to its number of splits, or make what is chained to it cheaper",
        )


def _saturated_vertex(view: JobView) -> Iterator[Finding]:
    """The vertex that works all the time, though nobody waits for room before it: its chain sets the pace of the job."""
    busiest = {v.status.vertex_id: max(s.busy_ms_per_s for s in v.subtasks) for v in view.details.vertices}
    vertex_id = max(busiest, key=lambda v: busiest[v])
    chain = [o for o in view.operators if o.vertex_id == vertex_id]
    running_ms = chain[0].running_ms(view.now_ms)
    if busiest[vertex_id] < view.limits.saturated_ms_per_s or running_ms is None or running_ms < view.limits.silent_ms:
        return
    came, last = chain[0].records_in, chain[-1]
    if not came:
        return
    inside = next((o for o in chain if _gives_each_row(o) and o.records_in and not o.records_out), None)
    nothing = inside is not None or (not last.description.is_sink and last.records_out == 0)
    text = (
        f"Its busiest subtask works {busiest[vertex_id] / 10:.0f} % of the time, and nothing behind it makes it wait."
    )
    text += (
        f" '{inside.name}' has taken {count_text(inside.records_in)} and given none yet."
        if inside is not None
        else f" {count_text(came)} have come to it."
    )
    yield Finding(
        "bottleneck",
        Severity.SLOWS if nothing else Severity.INFORMS,
        f"{_quoted(chain[0].vertex)} works all the time: the job is as fast as it is",
        text,
        (vertex_id,),
        chain[0].operator_id if inside is None else inside.operator_id,
        {"busy_ms_per_s": busiest[vertex_id], "records_in": came},
        "give it more subtasks, or make what it does for each row cheaper: functions in Python, requests to other systems",
    )


def _gives_each_row(operator: OperatorView) -> bool:
    """Whether an operator sends each row on as soon as it has computed it."""
    return operator.description.kind in ("Calc", "PythonFunction") and operator.fact("condition") is None


def lagging_sources(view: JobView) -> Iterator[Finding]:
    """Sources for which the system that they read has many records that they have not read yet."""
    for source in view.sources:
        pending = source.total("pendingRecords")
        if not view.is_over and source.records_out and pending >= view.limits.lagging_records:
            yield Finding(
                "source_lag",
                Severity.INFORMS,
                f"source '{source.name}' is {count_text(pending, 'record')} behind",
                f"So many wait in the system that it reads. It has sent {count_text(source.records_out)}.",
                (source.vertex_id,),
                source.operator_id,
                {"pending_records": pending},
                "this is so while a job catches up; if it grows, see what is the bottleneck",
            )


def _quoted(vertex: VertexDetails) -> str:
    return f"'{vertex.status.name}'"


def _listed(operators: Sequence[OperatorView]) -> str:
    return " and ".join(f"sink '{o.name}'" for o in operators)
