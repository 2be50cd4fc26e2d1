"""Elements that were in flight are processed as their old consumers would have: order, event time, idleness, own keys."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from runtime_fakes import Collect, ListSource, Seen, job, pairs, rows, vertex

from flowrun.core.elements import (
    ACTIVE,
    END_OF_INPUT,
    IDLE,
    MAX_WATERMARK,
    MIN_TIMESTAMP,
    Element,
    LatencyMarker,
    RecordBatch,
    Watermark,
    WatermarkStatus,
)
from flowrun.errors import InternalError, JobCancelledError
from flowrun.graph.execution_graph import ExecutionVertex, ExecutionVertexId, build_execution_graph
from flowrun.graph.partitioner import KeyGroupPartitioner, Partitioner, RebalancePartitioner
from flowrun.operators.base import CombinedWatermark
from flowrun.runtime.messages import RestoredChannel
from flowrun.runtime.network.valve import StatusWatermarkValve
from flowrun.runtime.task.replay import replay_in_flight

BY_KEY = KeyGroupPartitioner((0,))


def consumer(
    inputs: Sequence[int] = (0,), partitioner: Partitioner = BY_KEY, parallelism: int = 1, subtask: int = 0
) -> ExecutionVertex:
    """A subtask with an edge an entry of `inputs`, which says the logical input."""
    sources = [vertex(f"source{i}", lambda: ListSource(lambda _: ())) for i in range(len(inputs))]
    sink = vertex("sink", lambda: Collect(Seen()), parallelism=parallelism)
    for source, index in zip(sources, inputs, strict=True):
        sink.read(source, partitioner, index)
    return build_execution_graph(job(*sources, sink)).vertex(ExecutionVertexId("sink-0", subtask))


class Operator:
    """The head of a chain: keeps what it gets, and judges each row by the operator's combined event time."""

    def __init__(self, inputs: int = 1) -> None:
        self.got: list[object] = []
        self.judged: list[tuple[int, bool]] = []
        self.time_of: dict[int, int] = {}
        """Row → event time when it was processed."""
        self._time = CombinedWatermark(inputs)

    @property
    def event_time(self) -> int:
        return self._time.timestamp

    def process_batch(self, batch: RecordBatch, input_index: int) -> None:
        self.got.append((input_index, pairs([batch])))
        self.judged += [(v, v <= self._time.timestamp) for _, v in pairs([batch])]
        self.time_of.update({v: self._time.timestamp for _, v in pairs([batch])})

    def process_event(self, event: Watermark | WatermarkStatus | LatencyMarker, input_index: int) -> None:
        self.got.append((input_index, event))
        if isinstance(event, Watermark):
            self._time.update(input_index, event.timestamp)
        elif isinstance(event, WatermarkStatus):
            self._time.update_status(input_index, event.idle)

    def end_input(self, input_index: int) -> None: ...


def channel(
    *elements: Element, producer: int = 0, old: int = 0, watermark: int = MIN_TIMESTAMP, gate: int = 0, **other: bool
) -> RestoredChannel:
    flags = {"idle": False, "filter_keys": False, **other}
    return RestoredChannel(gate, producer, old, watermark, elements=elements, **flags)


def replay(
    channels: Sequence[RestoredChannel], subtask: ExecutionVertex | None = None
) -> tuple[Operator, tuple[int, ...]]:
    subtask = subtask or consumer()
    operator = Operator(1 + max(g.input_index for g in subtask.gates))
    return operator, replay_in_flight(channels, subtask, operator, lambda: None)


def test_event_time_goes_on_where_it_was() -> None:
    operator, reached = replay(
        [channel(rows([1], [7]), Watermark(9), watermark=5), channel(rows([2], [3]), producer=1, watermark=8)]
    )
    assert operator.got == [
        (0, Watermark(5)), (0, [(1, 7)]), (0, Watermark(8)), (0, [(2, 3)]),
    ]  # fmt: skip
    assert reached == (8,)


def test_an_idle_channel_does_not_count_until_it_caught_up() -> None:
    operator, reached = replay(
        [channel(watermark=50), channel(ACTIVE, Watermark(20), Watermark(60), producer=1, watermark=10, idle=True)]
    )
    assert operator.got == [(0, Watermark(50))]
    assert reached == (50,)
    operator, reached = replay(
        [channel(Watermark(70), watermark=50), channel(Watermark(20), producer=1, watermark=10, aligned=False)]
    )
    assert operator.got == [(0, Watermark(50)), (0, Watermark(70))], "active, but still behind"


def test_an_idle_input_is_active_at_the_end() -> None:
    operator, reached = replay([channel(watermark=50, idle=True)])
    assert operator.got == [(0, Watermark(50)), (0, IDLE), (0, ACTIVE)]
    assert reached == (50,)


def test_the_end_of_time_may_have_been_in_flight() -> None:
    _, reached = replay([channel(rows([1]), MAX_WATERMARK)])
    assert reached == (MAX_WATERMARK.timestamp,)


def test_an_old_consumer_that_is_behind_catches_up_first() -> None:
    """Two old consumers of one producer, now one: rows of the one ahead stay late, those of the other stay on time."""
    ahead = channel(rows([1], [80]), Watermark(120), old=0, watermark=100)
    behind = channel(rows([2], [70]), Watermark(100), rows([3], [90]), Watermark(120), old=1, watermark=50)
    operator, reached = replay([ahead, behind])
    assert sorted(operator.judged) == [(70, False), (80, True), (90, True)]
    assert reached == (120,)


def test_event_time_does_not_pass_an_old_consumer_whose_producer_is_behind() -> None:
    """On a forward exchange the producer of the one that is behind may have rows in flight that were not sent on."""
    ahead = channel(rows([1], [110]), Watermark(120), old=0, watermark=100)
    behind = channel(rows([2], [70]), Watermark(60), old=1, watermark=50, producer=1)
    operator, reached = replay([ahead, behind])
    assert sorted(operator.judged) == [(70, False), (110, False)]
    assert reached == (60,)
    done = channel(MAX_WATERMARK, old=1, watermark=50, producer=1)
    assert replay([ahead, done])[1] == (120,)
    idle = channel(IDLE, old=1, watermark=50, producer=1)
    assert replay([ahead, idle])[1] == (100,), "an idle one holds back nothing that others have in flight"


def test_idleness_of_one_old_consumer_does_not_let_another_ones_time_in() -> None:
    ahead = channel(old=0, watermark=100)
    behind = channel(IDLE, ACTIVE, rows([2], [70]), Watermark(100), old=1, watermark=50)
    operator, _ = replay([ahead, behind])
    assert operator.judged == [(70, False)]


def test_only_own_keys_are_processed_if_others_get_the_rows_too() -> None:
    batch = rows(list(range(20)), list(range(20)))
    found = []
    for subtask in range(3):
        operator, _ = replay([channel(batch, filter_keys=True)], consumer(parallelism=3, subtask=subtask))
        found.append({v for v, _ in operator.judged})
    assert set.union(*found) == set(range(20))
    assert sum(len(f) for f in found) == 20
    whole, _ = replay([channel(batch)], consumer(parallelism=3))
    assert len(whole.judged) == 20


def test_what_cannot_be_in_flight_is_refused() -> None:
    for element in (END_OF_INPUT, LatencyMarker(0, "s", 0)):
        with pytest.raises(InternalError, match=f"a {type(element).__name__} was in flight"):
            replay([channel(element)])
    with pytest.raises(InternalError, match="REBALANCE exchange cannot be cut to key groups"):
        replay([channel(rows([1]), filter_keys=True)], consumer(partitioner=RebalancePartitioner()))


def test_a_cancelled_task_does_not_go_on() -> None:
    def cancelled() -> None:
        raise JobCancelledError("cancelled")

    with pytest.raises(JobCancelledError):
        replay_in_flight([channel(rows([1]))], consumer(), Operator(), cancelled)


Edge = tuple[int, int]
"""(gate, producer)"""


class OldConsumer:
    """The oracle: an old subtask, with its valves and its operator, that has read a part of its channels."""

    def __init__(self, inputs: list[int], edges: Sequence[Edge], read: Sequence[tuple[Edge, Element]]) -> None:
        self._place: dict[Edge, tuple[int, int]] = {}
        counts = [0] * (max(inputs) + 1)
        for edge in edges:
            index = inputs[edge[0]]
            self._place[edge] = (index, counts[index])
            counts[index] += 1
        self._valves = [StatusWatermarkValve(count) for count in counts]
        self._operator = Operator(len(counts))
        for edge, element in read:
            index, number = self._place[edge]
            if isinstance(element, Watermark):
                for event in self._valves[index].watermark(number, element.timestamp):
                    self._operator.process_event(event, index)

    @property
    def event_time(self) -> int:
        return self._operator.event_time

    def restored(self, edge: Edge, old: int, elements: Sequence[Element]) -> RestoredChannel:
        index, number = self._place[edge]
        state = self._valves[index].channels[number]
        return RestoredChannel(*edge, old, state.watermark, state.idle, tuple(elements), False, state.aligned)


@pytest.mark.parametrize("inputs", [[0], [0, 0], [0, 1]])
@pytest.mark.parametrize("seed", range(60))
def test_rows_are_judged_as_their_old_consumer_would_have(inputs: list[int], seed: int) -> None:
    """Each old consumer got the same watermarks, but has read its channels at its own pace; one new subtask takes what is left.

    The order of its channels was open to the old consumer, so its event time at a row lies between two bounds: nothing more read
    from its other channels, and everything.
    """
    chance = random.Random(seed)
    producers, consumers = chance.randint(1, 2), chance.randint(1, 3)
    edges = [(gate, producer) for gate in range(len(inputs)) for producer in range(producers)]
    marks = {e: sorted(chance.sample(range(1, 100), chance.randint(0, 6))) for e in edges}
    channels: list[RestoredChannel] = []
    bounds: dict[int, tuple[int, int]] = {}
    number = 0
    for old in range(consumers):
        streams: dict[Edge, list[Element]] = {}
        for edge in edges:
            streams[edge] = [Watermark(m) for m in marks[edge]]
            for _ in range(chance.randint(0, 6)):
                number += 1
                streams[edge].insert(chance.randint(0, len(streams[edge])), rows([old], [number]))
        cut = {edge: chance.randint(0, len(stream)) for edge, stream in streams.items()}
        read = [(edge, e) for edge in edges for e in streams[edge][: cut[edge]]]
        state = OldConsumer(inputs, edges, read)
        channels += [state.restored(edge, old, streams[edge][cut[edge] :]) for edge in edges]
        for edge in edges:
            for at, element in enumerate(streams[edge]):
                if not isinstance(element, RecordBatch):
                    continue
                if at < cut[edge]:
                    continue
                least = [*read, *((edge, e) for e in streams[edge][cut[edge] : at])]
                most = [*least, *((other, e) for other in edges if other != edge for e in streams[other][cut[other] :])]
                bounds[element.columns["v"][0].as_py()] = (
                    OldConsumer(inputs, edges, least).event_time, OldConsumer(inputs, edges, most).event_time,
                )  # fmt: skip
    operator, _ = replay(channels, consumer(inputs))
    assert sorted(operator.time_of) == sorted(bounds), "every row once"
    for number, (least_time, most_time) in bounds.items():
        assert least_time <= operator.time_of[number] <= most_time, f"row {number}"
