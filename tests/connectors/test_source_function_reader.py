"""Source functions: their own thread, back pressure, cancelling, errors and positions."""

import threading

import pyarrow as pa
import pytest

from flowrun.api.operator import InputStatus
from flowrun.api.source import ReaderContext, Split
from flowrun.connectors.source_function_reader import SourceFunctionReader
from flowrun.core.clock import ManualClock
from flowrun.testing import ManualProcessingTime, RecordedMetrics, rows_of

PATIENCE_S = 20


class Collected:
    def __init__(self):
        self.log = []

    def emit(self, columns, split_id):
        times = [] if columns.timestamps is None else [columns.timestamps.to_pylist()]
        self.log.append((split_id, [v for (v,) in rows_of(columns.columns)], *times))

    def emit_watermark(self, timestamp_ms, split_id):
        self.log.append((split_id, "watermark", timestamp_ms))

    def mark_idle(self, split_id):
        self.log.append((split_id, "idle"))


class Driver:
    """Plays the subtask: waits for the reader's availability callback instead of sleeping."""

    def __init__(self, create, *, capacity=4, batch_rows=1000):
        self.requests = 0
        self.output = Collected()
        self.changed = threading.Condition()
        self.available = False
        clock = ManualClock()
        context = ReaderContext(
            0, 1, batch_rows, clock, RecordedMetrics(), self.request, self.notify, ManualProcessingTime(clock)
        )
        self.reader = SourceFunctionReader(context, create, capacity=capacity)

    def request(self):
        self.requests += 1

    def notify(self):
        with self.changed:
            self.available = True
            self.changed.notify_all()

    def wait(self):
        with self.changed:
            assert self.changed.wait_for(lambda: self.available, PATIENCE_S)
            self.available = False

    def run(self):
        while True:
            status = self.reader.poll(self.output)
            if status is InputStatus.END_OF_INPUT:
                return self.output.log
            if status is InputStatus.NOTHING_AVAILABLE:
                if self.requests:
                    self.requests -= 1
                    self.reader.notify_no_more_splits()
                else:
                    self.wait()


def batch(*values):
    return pa.record_batch({"v": pa.array(values, pa.int64())})


class Function:
    """A source function from a plain one."""

    def __init__(self, body):
        self.body = body
        self.cancels = 0

    def run(self, context):
        self.body(context)

    def cancel(self):
        self.cancels += 1


def no_threads_left():
    return not [t for t in threading.enumerate() if t.name.startswith("source-")]


def test_everything_arrives_in_order():
    def body(context):
        context.collect(batch(1))
        context.collect_with_timestamps(batch(2), pa.array([20], pa.int64()))
        context.emit_watermark(19)
        context.mark_as_temporarily_idle()
        context.collect(batch(3))

    driver = Driver(lambda split: Function(body))
    driver.reader.start()
    assert driver.requests == 1
    driver.requests = 0
    driver.reader.add_splits([Split("s", {})])
    assert driver.run() == [("s", [1]), ("s", [2], [20]), ("s", "watermark", 19), ("s", "idle"), ("s", [3])]
    driver.reader.close()
    assert no_threads_left()


def test_small_batches_that_wait_are_joined():
    done = threading.Event()

    def body(context):
        for n in range(5):
            context.collect(batch(n))
        done.set()

    driver = Driver(lambda split: Function(body), capacity=10)
    driver.reader.add_splits([Split("s", {})])
    assert done.wait(PATIENCE_S)
    driver.reader.poll(driver.output)
    assert driver.output.log == [("s", [0, 1, 2, 3, 4])]
    driver.reader.close()


def test_a_fast_function_waits_for_the_job():
    sent = []
    full = threading.Event()

    def body(context):
        for n in range(10):
            if n == 3:
                full.set()
            context.collect(batch(n))
            sent.append(n)

    driver = Driver(lambda split: Function(body), capacity=3)
    driver.reader.add_splits([Split("s", {})])
    assert full.wait(PATIENCE_S)
    assert len(sent) <= 3, "the fourth batch waits"
    assert [v for _, values in driver.run() for v in values] == list(range(10))


def test_cancelling_wakes_a_waiting_function_and_joins_its_thread():
    outcome = []
    first = threading.Event()

    def body(context):
        try:
            while True:
                context.collect(batch(1))
                first.set()
        finally:
            outcome.append(context.cancelled)

    function = Function(body)
    driver = Driver(lambda split: function, capacity=1)
    driver.reader.add_splits([Split("s", {})])
    assert first.wait(PATIENCE_S)
    driver.reader.close()
    assert outcome == [True]
    assert function.cancels == 1
    assert no_threads_left()
    driver.reader.close()
    assert function.cancels == 1


def test_what_a_function_raises_is_raised_in_the_subtask():
    def body(context):
        context.collect(batch(1))
        raise ConnectionResetError("peer is gone")

    driver = Driver(lambda split: Function(body))
    driver.reader.add_splits([Split("s", {})])
    with pytest.raises(ConnectionResetError, match="peer is gone"):
        driver.run()
    assert no_threads_left()


def test_positions_follow_what_was_polled_and_come_back():
    restored = []
    started = threading.Event()

    def body(context):
        restored.append(dict(context.restored_position))
        start = context.restored_position.get("next", 0)
        for n in range(start, 4):
            context.collect(batch(n), position={"next": n + 1})
        started.set()

    driver = Driver(lambda split: Function(body), capacity=10, batch_rows=2)
    driver.reader.add_splits([Split("s", {})])
    assert started.wait(PATIENCE_S)
    assert list(driver.reader.snapshot()) == [Split("s", {})], "nothing was polled yet"
    driver.reader.poll(driver.output)
    (split,) = driver.reader.snapshot()
    assert split.position == {"next": 2}
    assert driver.output.log == [("s", [0, 1])]
    driver.reader.close()

    again = Driver(lambda split: Function(body))
    again.reader.add_splits([split])
    again.reader.start()
    assert again.requests == 0, "a restored split is enough to begin with"
    values = [v for _, values in again.run() for v in values]
    assert values == [2, 3]
    assert restored == [{}, {"next": 2}]


def test_several_splits_run_side_by_side():
    both = threading.Barrier(2)

    def create(split):
        def body(context):
            both.wait(PATIENCE_S)
            context.collect(batch(split.position["value"]))

        return Function(body)

    driver = Driver(create)
    driver.reader.add_splits([Split("a", {"value": 1}), Split("b", {"value": 2})])
    assert sorted(driver.run()) == [("a", [1]), ("b", [2])]
