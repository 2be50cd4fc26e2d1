"""Findings about keys: rows that go to one subtask, and state that grows with every row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from flowrun.operators.keyed.key_rows import NUM_STATE_ROWS
from flowrun.runners.why.finding import Figure, Finding, Severity, count_text, share_text
from flowrun.runners.why.job_view import JobView, OperatorView
from flowrun.runtime.checkpoint.records import COMPLETED
from flowrun.runtime.job_details import ExchangeDescription
from flowrun.runtime.network.key_sample import HEAVY_KEYS

_SHOWN_KEYS = 3
_TRENDS = 3
"""Checkpoints from which on a trend is told."""


def skewed_keys(view: JobView) -> Iterator[Finding]:
    """Exchanges by key that send one subtask far more than its share; with the heaviest keys."""
    for exchange in view.details.exchanges:
        vertex = view.vertices[exchange.target]
        subtasks = vertex.subtasks
        if not exchange.partitioner.startswith("HASH") or len(subtasks) < 2:
            continue
        name = f"input.{exchange.input_index + 1}.records"
        rows = [int(s.gauges.get(name) or 0) for s in subtasks]
        total, most = sum(rows), max(rows)
        if total < view.limits.skewed_rows:
            continue
        fair = 1 / len(rows)
        if most / total < fair + view.limits.skewed_share * (1 - fair):
            continue
        worst = rows.index(most)
        heavy = [(k, s) for k, s in heavy_keys(view, exchange) if s >= view.limits.heavy_key][:_SHOWN_KEYS]
        busy = subtasks[worst].busy_ms_per_s >= view.limits.busy_ms_per_s
        text = f"Subtask {worst} of {len(rows)} gets {share_text(most, total)} of {count_text(total)}, which are dealt out by"
        text += f" {view.spelled(_columns(exchange), view.before(exchange.source))}."
        if heavy:
            listed = ", ".join(f"{key} ({share_text(share, 1)})" for key, share in heavy)
            text += f" The heaviest keys of the rows that were looked at: {listed}."
        text += " It has no time to spare, while others do." if busy else " It keeps up."
        figures: dict[str, Figure] = {"subtask": worst, "records": most, "all_records": total}
        figures.update((f"key {key}", round(share, 3)) for key, share in heavy)
        yield Finding(
            "skewed_keys",
            Severity.SLOWS if busy else Severity.INFORMS,
            f"one subtask of '{vertex.status.name}' gets {share_text(most, total)} of the rows",
            text,
            (vertex.status.vertex_id,),
            vertex.operators[0].operator_id,
            figures,
            "more subtasks do not help where one key has most rows: aggregate in two steps, or leave that key out",
        )


def heavy_keys(view: JobView, exchange: ExchangeDescription) -> list[tuple[str, float]]:
    """(key, its part of the rows that were looked at) of an exchange, heaviest first; empty: nobody looked."""
    weights: defaultdict[str, float] = defaultdict(float)
    begin = f"{HEAVY_KEYS}.{exchange.exchange_id}."
    senders = view.vertices[exchange.source].subtasks
    for subtask in senders:
        for name, share in subtask.gauges.items():
            if name.startswith(begin) and share is not None:
                key = view.spelled(name.removeprefix(begin), view.before(exchange.source))
                weights[key] += share * max(subtask.records_out, 1)
    every = sum(max(s.records_out, 1) for s in senders)
    return sorted(((key, weight / every) for key, weight in weights.items()), key=lambda k: (-k[1], k[0]))


def _columns(exchange: ExchangeDescription) -> str:
    return exchange.partitioner.removeprefix("HASH[").removesuffix("]")


def growing_state(view: JobView) -> Iterator[Finding]:
    """Operators that keep about a row for each row that comes, for ever, while rows come without end."""
    for operator in view.operators:
        rows, came = operator.total(NUM_STATE_ROWS), view.rows_before(operator)
        endless = any(not s.fact("bounded") for s in view.sources_before(operator))
        if view.is_over or has_ttl(operator) or not endless or rows < view.limits.growing_rows:
            continue
        if rows < view.limits.growing_share * came:
            continue
        keys = ", ".join(dict.fromkeys(name for side in operator.keys for name in side))
        text = f"It keeps {count_text(rows, 'entry', 'entries')} after {count_text(came)}: about"
        text += f" {rows / came:.1f} for each row that comes, and without a time to live none is ever forgotten."
        trend = _sizes(view, operator)
        if len(trend) >= _TRENDS and trend[-1] > trend[0]:
            text += f" In checkpoints it went from {trend[0]:,} to {trend[-1]:,} rows."
        yield Finding(
            "state_grows",
            Severity.RISKS,
            f"the state of '{operator.name}' grows without end",
            text,
            (operator.vertex_id,),
            operator.operator_id,
            {"entries": rows, "records_in": came, "keys": keys or None},
            "give it a time to live (settings.state.ttl; STATE_TTL in SQL), or let it go by windows",
        )


def has_ttl(operator: OperatorView) -> bool:
    """Whether what an operator keeps is forgotten some time; of a join, both sides."""
    ttl = operator.fact("ttl_ms"), operator.fact("left_ttl_ms"), operator.fact("right_ttl_ms")
    return bool(ttl[0]) or bool(ttl[1] and ttl[2])


def _sizes(view: JobView, operator: OperatorView) -> list[int]:
    """Rows of the operator's state in the checkpoints that are known, oldest first."""
    return [
        sum(o.state_rows for v in c.vertices for o in v.operators if o.operator_id == operator.operator_id)
        for c in view.details.checkpoints
        if c.status == COMPLETED
    ]
