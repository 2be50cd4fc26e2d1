"""What findings amount to, in a sentence or two; where nothing is wrong, by what one sees that."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.runners.why.finding import Finding, Severity, Thresholds, count_text, duration_text, share_text, time_text
from flowrun.runners.why.job_view import JobView
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.lifecycle import JobState

_MEANING = {
    Severity.BLOCKS: "keeps rows from coming out",
    Severity.LOSES: "leaves rows out",
    Severity.SLOWS: "makes the job slow",
    Severity.RISKS: "may become a problem",
}
_PLURAL = {
    Severity.BLOCKS: "keep rows from coming out",
    Severity.LOSES: "leave rows out",
    Severity.SLOWS: "make the job slow",
    Severity.RISKS: "may become problems",
}


def summary(details: JobDetails, found: Sequence[Finding]) -> str:
    """One line about findings; if none of them is a problem, what one sees of a job that is well."""
    counts = {severity: sum(f.severity is severity for f in found) for severity in _MEANING}
    told = [
        f"{count_text(count, 'thing')} {_MEANING[severity] if count == 1 else _PLURAL[severity]}"
        for severity, count in counts.items()
        if count
    ]
    return ", ".join(told) if told else f"nothing is wrong that can be seen: {_by_what(JobView(details, Thresholds()))}"


def _by_what(view: JobView) -> str:
    status = view.details.status
    read = sum(source.records_in for source in view.sources)
    written = sum(sink.records_in for sink in view.sinks)
    parts = [f"sources have read {count_text(read)}, sinks have taken {count_text(written)}"]
    if status.state is JobState.FINISHED:
        return f"the job has finished; {parts[0]}"
    watermarks = [v.status.watermark for v in view.details.vertices if v.status.watermark is not None]
    if watermarks:
        parts.append(f"event time is at {time_text(min(watermarks))} where it is least")
    pressed = max((v.status.max_back_pressured_ms_per_s for v in view.details.vertices), default=0.0)
    parts.append(f"nobody waits for room more than {share_text(pressed, 1000)} of the time")
    checkpoints = status.checkpoints
    if checkpoints is not None and checkpoints.last is not None:
        ago = max(view.now_ms - checkpoints.last.triggered_ms, 0)
        parts.append(
            f"{count_text(checkpoints.completed, 'checkpoint')} are complete, the last {duration_text(ago)} ago"
        )
    parts.append(f"{count_text(status.restarts, 'restart')}" if status.restarts else "no restarts")
    return ", ".join(parts)
