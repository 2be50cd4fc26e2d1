"""What a pipeline promises of each sink after a failure: how often a row's effect arrives, and what limits it.

The rule is that of end-to-end exactly once (Carbone et al., "State Management in Apache Flink", VLDB 2017): sources that replay, state
that goes back to the same point, and sinks that show nothing which a failure could take back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flowrun.api.sink import ConditionalDelivery
from flowrun.api.sink import Sink as SinkDescription
from flowrun.api.source import Boundedness, Delivery, Source
from flowrun.connectors.registry import connector_named
from flowrun.connectors.staged.commit import waits_for_checkpoints
from flowrun.core.record import record
from flowrun.core.recovery import CheckpointSettings, RestartSettings
from flowrun.plan.nodes import Plan, PlanNode, Scan, Sink, TableReference, walk_plan
from flowrun.plan.tables import create_sink, create_source

AT_LEAST_ONCE_MODE = "at_least_once"


_GUARANTEE, _EXACTLY_ONCE = "sink.delivery-guarantee", "exactly-once"
"""The option by which sinks of several connectors promise more."""


@record
class Endpoint:
    """A source or sink by the user's name, with its connector and what that can promise.

    Attributes:
        offers_exactly_once: of a sink: whether an option would have it promise more.
        condition: of a sink: what its promise rests on; empty: nothing.
        stages: of a sink: whether rows wait beside the checkpoint, outside of the system that they go to.
    """

    name: str
    connector: str
    delivery: Delivery
    offers_exactly_once: bool = False
    condition: str = ""
    stages: bool = False


@record
class SinkGuarantee:
    """What holds for the rows of one sink.

    Attributes:
        sink: its name.
        delivery: None: rows may be lost and repeated.
        reasons: what is in the way of more, or what it rests on outside.
        grounds: of exactly once, why it holds.
    """

    sink: str
    delivery: Delivery | None
    reasons: tuple[str, ...] = ()
    grounds: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """What holds, in two or three words."""
        return "no guarantee" if self.delivery is None else self.delivery.value

    def __str__(self) -> str:
        return self._shown(self.reasons)

    @property
    def explained(self) -> str:
        """What holds, and why, also where it cannot be more."""
        return self._shown((*self.grounds, *self.reasons))

    def _shown(self, why: tuple[str, ...]) -> str:
        return f"sink '{self.sink}': {self.word}" + (f" — {'; '.join(why)}" if why else "")

    def to_json(self) -> dict[str, object]:
        """The same as JSON values."""
        grounds = {"grounds": list(self.grounds)} if self.grounds else {}
        return {"sink": self.sink, "delivery": self.word, "reasons": list(self.reasons), **grounds}


def sink_guarantee(
    sink: Endpoint,
    sources: Iterable[Endpoint],
    checkpoint: CheckpointSettings | None,
    restart: RestartSettings | None,
    *,
    unbounded: bool = False,
) -> SinkGuarantee:
    """What holds for a sink that is fed by these sources.

    Args:
        sink: with what it promises under checkpoints.
        sources: all that its rows come from.
        checkpoint: settings of the job, None: no checkpoints.
        restart: settings of the job.
        unbounded: whether the job has a source without end.

    >>> files, text = Endpoint("in", "filesystem", Delivery.EXACTLY_ONCE), Endpoint("out", "print", Delivery.AT_LEAST_ONCE)
    >>> print(sink_guarantee(text, [files], CheckpointSettings(1000), None))
    sink 'out': at least once — connector print cannot take back rows
    """
    sources = tuple(sources)
    if checkpoint is None:
        return _without_checkpoints(sink, restart, unbounded)
    lost = [
        f"source '{s.name}': connector {s.connector} cannot replay"
        for s in sources
        if s.delivery is Delivery.AT_MOST_ONCE
    ]
    if sink.delivery is Delivery.AT_MOST_ONCE:
        lost.append(f"connector {sink.connector} does not write rows again")
    repeated = [
        f"source '{s.name}': connector {s.connector} may replay rows twice"
        for s in sources
        if s.delivery is Delivery.AT_LEAST_ONCE
    ]
    if checkpoint.mode == AT_LEAST_ONCE_MODE:
        repeated.append("checkpoint mode at_least_once: state may count rows twice")
    if sink.delivery is Delivery.AT_LEAST_ONCE:
        repeated.append(
            f"connector {sink.connector} writes rows as they come, unless '{_GUARANTEE}' = '{_EXACTLY_ONCE}'"
            if sink.offers_exactly_once
            else f"connector {sink.connector} cannot take back rows"
        )
    if lost and repeated:
        return SinkGuarantee(sink.name, None, (*lost, *repeated))
    if lost or repeated:
        return SinkGuarantee(sink.name, Delivery.AT_MOST_ONCE if lost else Delivery.AT_LEAST_ONCE, (*lost, *repeated))
    condition = (sink.condition,) if sink.condition else ()
    return SinkGuarantee(sink.name, Delivery.EXACTLY_ONCE, condition, _grounds(sink, sources))


def _grounds(sink: Endpoint, sources: Iterable[Endpoint]) -> tuple[str, ...]:
    """Why a sink gets each row once."""
    names = sorted({f"'{s.name}'" for s in sources})
    replayed = []
    if names:
        what = f"source {names[0]} is" if len(names) == 1 else f"sources {', '.join(names[:-1])} and {names[-1]} are"
        replayed.append(f"{what} read again from the places that a checkpoint holds")
    shows = (
        "keeps rows beside the checkpoint and writes them once it is complete"
        if sink.stages
        else "shows rows once their checkpoint is complete"
    )
    return (*replayed, f"connector {sink.connector} {shows}")


def _without_checkpoints(sink: Endpoint, restart: RestartSettings | None, unbounded: bool) -> SinkGuarantee:
    if restart is None or restart.strategy == "none":
        return SinkGuarantee(sink.name, Delivery.AT_MOST_ONCE, ("no checkpoints: a job that fails cannot be resumed",))
    if sink.delivery is Delivery.EXACTLY_ONCE and not unbounded:  # nothing was visible before the end
        return SinkGuarantee(sink.name, Delivery.AT_MOST_ONCE, ("no checkpoints: a restart begins anew",))
    return SinkGuarantee(
        sink.name, None, ("no checkpoints: a restart begins anew, and what was written before it stays",)
    )


def plan_guarantees(plan: Plan) -> tuple[SinkGuarantee, ...]:
    """What holds for each sink of a plan, in its order. Raises OptionError as making its sources and sinks does."""
    settings = plan.settings
    sources: dict[int, Source] = {}
    for node in walk_plan(plan):
        if isinstance(node, Scan):
            sources[id(node)] = create_source(node.table, node.physical, node.declared, node.filters)
    unbounded = any(s.boundedness is Boundedness.UNBOUNDED for s in sources.values())
    return tuple(
        sink_guarantee(
            _sink_endpoint(node.table, create_sink(node.table, node.schema, unbounded), settings.checkpoint),
            [_endpoint(s.table, sources[id(s)].delivery) for s in _scans(node)],
            settings.checkpoint,
            settings.restart,
            unbounded=unbounded,
        )
        for node in plan.sinks
    )


def _sink_endpoint(table: TableReference, sink: SinkDescription, checkpoint: CheckpointSettings | None) -> Endpoint:
    delivery = _delivery(sink, checkpoint)
    condition = sink.delivery_condition if isinstance(sink, ConditionalDelivery) else ""
    return replace(
        _endpoint(table, delivery),
        condition=condition if delivery is sink.delivery else "",
        stages=waits_for_checkpoints(sink),
    )


def _delivery(sink: SinkDescription, checkpoint: CheckpointSettings | None) -> Delivery:
    """What a sink promises in a job with these checkpoints."""
    return Delivery.AT_LEAST_ONCE if checkpoint is None and waits_for_checkpoints(sink) else sink.delivery


def batch_guarantees(plan: Plan) -> tuple[SinkGuarantee, ...]:
    """What holds for each sink of a plan that runs as a batch: a run that fails shows nothing, the next one begins anew.

    Raises OptionError as making its sinks does.
    """
    return tuple(_batch_guarantee(node) for node in plan.sinks)


def _batch_guarantee(sink: Sink) -> SinkGuarantee:
    made = create_sink(sink.table, sink.schema, unbounded=False)
    if made.delivery is Delivery.EXACTLY_ONCE and not waits_for_checkpoints(made):
        ground = f"connector {sink.table.connector} shows rows when the run is over: one that fails shows none"
        return SinkGuarantee(sink.table.name, Delivery.EXACTLY_ONCE, grounds=(ground,))
    reason = f"connector {sink.table.connector} cannot take back rows: another run writes them again"
    return SinkGuarantee(sink.table.name, Delivery.AT_LEAST_ONCE, (reason,))


def _endpoint(table: TableReference, delivery: Delivery) -> Endpoint:
    options = connector_named(table.connector).sink_options
    offers = any(o.name == _GUARANTEE and _EXACTLY_ONCE in o.choices for o in options)
    return Endpoint(table.name, table.connector, delivery, offers)


def _scans(sink: Sink) -> list[Scan]:
    """The tables that a sink's rows come from, each once, in the plan's order."""
    found: dict[str, Scan] = {}
    seen: set[int] = set()
    stack: list[PlanNode] = [sink]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Scan):
            found.setdefault(node.table.name, node)
        stack.extend(reversed(node.inputs))
    return list(found.values())
