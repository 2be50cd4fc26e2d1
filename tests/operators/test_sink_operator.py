"""Sinks: writing, pre-committing, handing over, and never committing by themselves."""

import pytest

from flowrun.api.sink import Committable
from flowrun.core.elements import MAX_TIMESTAMP, LatencyMarker
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT
from flowrun.errors import ConnectorError, DataError, InternalError
from flowrun.operators.factories import SinkOperatorFactory
from flowrun.operators.implementations import create_operator
from flowrun.testing import OperatorHarness
from tests.operators.fake_connector import ListSink

SCHEMA = Schema((Field("id", BIGINT, nullable=False), Field("v", BIGINT)))


def make(sink, **options):
    return OperatorHarness(SinkOperatorFactory(sink, "out"), schema=SCHEMA, **options)


def push(harness, *ids):
    harness.push({"id": list(ids), "v": [None] * len(ids)})


def committed(harness):
    return [list(c.payload["rows"]) for c in harness.committables]


def test_a_bounded_job_commits_once_at_the_end():
    sink = ListSink(SCHEMA)
    harness = make(sink)
    push(harness, 1, 2)
    harness.watermark(10)
    push(harness, 3)
    assert harness.committables == []
    harness.end_input()
    assert committed(harness) == [[1, 2, 3]]
    harness.close()
    harness.operator.close()
    assert sink.log == ["open", ("watermark", 10), ("watermark", MAX_TIMESTAMP), ("flush", True), "close"]


def test_a_cancelled_job_commits_nothing():
    harness = make(ListSink(SCHEMA))
    push(harness, 1, 2)
    harness.close()
    assert harness.committables == []


def test_an_unbounded_job_without_checkpoints_commits_what_is_rolled():
    harness = make(ListSink(SCHEMA, rolls=True), unbounded=True)
    push(harness, 1)
    push(harness, 2)
    push(harness, 3)
    assert committed(harness) == [[1, 2]]
    harness.end_input()
    assert committed(harness) == [[1, 2], [3]]


def test_with_checkpoints_results_wait_for_completion():
    harness = make(ListSink(SCHEMA), unbounded=True, checkpointing=True)
    push(harness, 1)
    harness.snapshot(1)
    push(harness, 2)
    harness.snapshot(2)
    harness.abort_checkpoint(1)
    push(harness, 3)
    harness.snapshot(3)
    assert harness.committables == []
    harness.complete_checkpoint(2)
    assert committed(harness) == [[1], [2]], "an aborted checkpoint's results belong to the next one"
    harness.end_input()
    assert committed(harness) == [[1], [2], [3]]


def test_a_restored_sink_first_hands_over_what_was_pre_committed():
    first = make(ListSink(SCHEMA), checkpointing=True)
    push(first, 1)
    first.snapshot(1)
    push(first, 2)
    snapshot = first.snapshot(2)
    assert snapshot.operator["committables"].rows.to_pylist() == [
        {"checkpoint_id": 1, "commit_id": "0-1", "payload": '{"rows":[1]}'},
        {"checkpoint_id": 2, "commit_id": "0-2", "payload": '{"rows":[2]}'},
    ]
    second = OperatorHarness.restore(SinkOperatorFactory(ListSink(SCHEMA)), [snapshot], schema=SCHEMA)
    assert second.committables == [Committable("0-1", {"rows": [1]}), Committable("0-2", {"rows": [2]})]
    assert second.snapshot().operator["committables"].rows.num_rows == 0


def test_not_null_is_enforced():
    harness = make(ListSink(SCHEMA))
    with pytest.raises(DataError) as caught:
        push(harness, 1, None, None)
    assert caught.value.row == 1
    assert "sink 'out': column 'id' is NOT NULL, but row 1 {id: NULL, v: NULL} has no value" in str(caught.value)
    assert "IS NOT NULL" in str(caught.value)


def test_outside_failures_carry_the_name_of_the_sink():
    harness = make(ListSink(SCHEMA))
    with pytest.raises(ConnectorError, match=r"sink 'out': OSError: .*No space left on device"):
        push(harness, 13)


def test_latency_markers_end_at_a_sink():
    harness = make(ListSink(SCHEMA))
    harness.latency_marker(LatencyMarker(100, "source", 0))
    assert harness.elements == []


def test_wiring_mistakes_are_internal_errors():
    operator = create_operator(SinkOperatorFactory(ListSink(SCHEMA)))
    harness = OperatorHarness(SinkOperatorFactory(ListSink(SCHEMA)))
    operator.setup(harness.context, harness.output)
    with pytest.raises(InternalError, match="was not connected"):
        operator.open()


def test_writers_know_the_next_checkpoint_that_could_hold_what_comes():
    harness = make(ListSink(SCHEMA), checkpointing=True, open=False)
    object.__setattr__(harness.context, "owner", "lineage")
    object.__setattr__(harness.context, "first_checkpoint_id", 6)
    harness.start()
    number = harness.operator._writer.context.next_checkpoint_id
    assert number() == 6
    harness.snapshot(6)
    assert number() == 7
    harness.snapshot(9)
    assert number() == 10
