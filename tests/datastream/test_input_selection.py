"""Operators with several inputs: multi-input tasks, and inputs that are selected, to the end and without waiting for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.input_selection import InputSelection
from flowrun.api.operator import ChainingStrategy, StreamOperator
from flowrun.connectors import memory
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.datastream import DataStream, MultipleConnectedStreams, StreamExecutionEnvironment
from flowrun.errors import JobFailedError, PipelineError
from flowrun.graph.stream_graph import ExecutionMode
from flowrun.operators.base import AbstractOperator
from flowrun.runners.embedded import run_embedded
from flowrun.testing import rows_of

ROWS = Schema.of(n=BIGINT)
SEEN = Schema.of(n=BIGINT, input=BIGINT, watermark=BIGINT)


class Reader(AbstractOperator):
    """Sends rows with the number of their input; reads the inputs in the order of `turns`, each to its end."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.ended: list[int] = []

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        numbers = pa.array([input_index] * batch.num_rows, pa.int64())
        watermarks = pa.array([self.current_watermark] * batch.num_rows, pa.int64())
        self.output.emit(RecordBatch(pa.record_batch([batch.columns.column(0), numbers, watermarks], names=SEEN.names)))

    def end_input(self, input_index: int = 0) -> None:
        self.ended.append(input_index)


class InTurns(Reader):
    def __init__(self, turns: tuple[int, ...]) -> None:
        super().__init__(len(turns))
        self.turns = turns

    def next_selection(self) -> InputSelection:
        left = [t for t in self.turns if t not in self.ended]
        return InputSelection.of(left[0]) if left else InputSelection.ALL


class Stubborn(Reader):
    """Reads the first input only, even when it has ended."""

    def next_selection(self) -> InputSelection:
        return InputSelection.FIRST


class Alternating(Reader):
    """Reads a batch of each input in turn, as long as both have some."""

    def __init__(self) -> None:
        super().__init__(2)
        self.next = 0

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        assert self.ended or input_index == self.next
        self.next = 1 - input_index
        super().process_batch(batch, input_index)

    def next_selection(self) -> InputSelection:
        return InputSelection.ALL if self.ended else InputSelection.of(self.next)


@dataclass(frozen=True)
class Recipe:
    kind: str
    arguments: tuple[Any, ...] = ()
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS

    def create(self) -> StreamOperator:
        made: StreamOperator = globals()[self.kind](*self.arguments)
        return made


def streams(count: int, *, rows: int = 2000, **options: Any) -> tuple[StreamExecutionEnvironment, list[DataStream]]:
    memory.clear()
    env = StreamExecutionEnvironment("job", parallelism=1, **options)
    found = []
    for index in range(count):
        values = [range(start, start + 10) for start in range(0, rows, 10)]
        memory.put(f"in{index}", [pa.record_batch({"n": pa.array(v, pa.int64())}) for v in values])
        found.append(env.from_source(memory.MemorySource(f"in{index}", ROWS), name=f"in{index}"))
    return env, found


def seen() -> list[tuple[Any, ...]]:
    return [row for batch in memory.take("out") for row in rows_of(batch.columns)]


def run(env: StreamExecutionEnvironment, stream: DataStream) -> list[tuple[Any, ...]]:
    stream.sink_to(memory.MemorySink("out", SEEN))
    env.execute(run_embedded)
    return seen()


@pytest.mark.parametrize("mode", [ExecutionMode.STREAMING, ExecutionMode.BATCH])
def test_an_operator_of_many_inputs_gets_the_rows_of_each(mode: ExecutionMode) -> None:
    env, inputs = streams(4, rows=100, mode=mode)
    got = run(env, MultipleConnectedStreams(*inputs).transform(Recipe("Reader", (4,)), SEEN))
    assert sorted(r[:2] for r in got) == sorted((n, i) for n in range(100) for i in range(4))


def test_many_keyed_inputs_meet_by_key() -> None:
    env, inputs = streams(3, rows=100)
    keyed = MultipleConnectedStreams(*inputs).key_by("n", ["n"], "n")
    operator = keyed.transform(Recipe("Reader", (3,)), "n BIGINT, input BIGINT, watermark BIGINT")
    assert operator.set_parallelism(2) is operator
    assert sorted(r[:2] for r in run(env, operator)) == sorted((n, i) for n in range(100) for i in range(3))


@pytest.mark.parametrize("mode", [ExecutionMode.STREAMING, ExecutionMode.BATCH])
@pytest.mark.parametrize("turns", [(0, 1), (1, 0), (2, 0, 1)])
def test_inputs_are_read_in_the_order_that_the_operator_selects(turns: tuple[int, ...], mode: ExecutionMode) -> None:
    env, inputs = streams(len(turns), mode=mode)
    recipe = Recipe("InTurns", (turns,))
    both = inputs[0].connect(inputs[1]).process(recipe, SEEN) if len(turns) == 2 else None
    got = run(env, both or MultipleConnectedStreams(*inputs).transform(recipe, SEEN))
    assert [r[:2] for r in got] == [(n, turn) for turn in turns for n in range(2000)]


def test_a_selection_may_change_with_every_batch() -> None:
    env, inputs = streams(2)
    got = run(env, inputs[0].connect(inputs[1]).process(Recipe("Alternating"), SEEN))
    assert sorted(r[:2] for r in got) == sorted((n, i) for n in range(2000) for i in range(2))


def test_selecting_only_what_has_ended_is_an_error() -> None:
    env, inputs = streams(2, rows=20)
    with pytest.raises(JobFailedError, match=r"selects input 0, of which everything was read, and not 1"):
        run(env, inputs[0].connect(inputs[1]).process(Recipe("Stubborn", (2,)), SEEN))


def test_a_job_that_selects_inputs_takes_no_checkpoints(tmp_path: Any) -> None:
    env, inputs = streams(2, rows=20)
    env.enable_checkpointing(1000, directory=str(tmp_path))
    with pytest.raises(JobFailedError, match=r"selects its inputs .InputSelectable., and the job takes checkpoints"):
        run(env, inputs[0].connect(inputs[1]).process(Recipe("InTurns", ((0, 1),)), SEEN))


def test_mistakes_are_said_when_the_program_is_built() -> None:
    _, (one, two, _) = streams(3)
    with pytest.raises(PipelineError, match="was given 1 streams"):
        MultipleConnectedStreams(one)
    with pytest.raises(PipelineError, match="got columns of 1"):
        MultipleConnectedStreams(one, two).key_by("n")
    with pytest.raises(PipelineError, match="stream 2 of 2 has no keys, others have"):
        MultipleConnectedStreams(one.key_by("n"), two).transform(Recipe("Reader", (2,)), SEEN)
    other = StreamExecutionEnvironment("other").from_source(memory.MemorySource("in0", Schema.of(n=STRING)))
    with pytest.raises(PipelineError, match="belong to different environments"):
        MultipleConnectedStreams(one, other)
