"""`partition_custom`: a function of the key and the number of subtasks says where each row goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from flowrun.api.process_function import OpenContext, ProcessContext, ProcessFunction
from flowrun.datastream import DataStream, StreamExecutionEnvironment
from flowrun.errors import JobFailedError, PipelineError

ROWS = [{"k": "abc"[i % 3], "n": i} for i in range(30)]


class Subtask(ProcessFunction):
    """Tells where each row came."""

    def open(self, context: OpenContext) -> None:
        self.subtask = context.subtask

    def process_element(self, row: Mapping[str, Any], context: ProcessContext) -> Mapping[str, Any]:
        return {"n": row["n"], "at": self.subtask}


def stream() -> DataStream:
    env = StreamExecutionEnvironment("dealt", parallelism=3)
    return env.from_collection(ROWS, "k STRING, n BIGINT")


WAYS: dict[str, tuple[Callable[[DataStream], DataStream], Callable[[Mapping[str, Any]], int]]] = {
    "a column": (lambda s: s.partition_custom(lambda key, n: ord(key) % n, "k"), lambda row: ord(row["k"]) % 3),
    "two columns": (
        lambda s: s.partition_custom(lambda key, n: (ord(key[0]) + key[1]) % n, ("k", "n")),
        lambda row: (ord(row["k"]) + row["n"]) % 3,
    ),
    "a function of the row": (
        lambda s: s.partition_custom(lambda key, n: key % n, lambda row: row["n"] // 4),
        lambda row: row["n"] // 4 % 3,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_row_goes_where_the_function_says(way: str) -> None:
    dealt, wanted = WAYS[way]
    told = dealt(stream()).process(Subtask, "n BIGINT, at BIGINT").execute_and_collect()
    assert sorted((row["n"], row["at"]) for row in told) == [(row["n"], wanted(row)) for row in ROWS]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda key, n: key + n, "partition_custom 'custom': the function raised TypeError"),
        (lambda key, n: "0", "TypeError: 'str' object cannot be interpreted as an integer"),
        (lambda key, n: n, "channels are 0 to 2"),
    ],
)
def test_a_function_that_names_no_subtask_fails_the_job(function: Callable[[Any, int], int], message: str) -> None:
    with pytest.raises(JobFailedError, match=message):
        stream().partition_custom(function, "k").process(Subtask, "n BIGINT, at BIGINT").execute_and_collect()


def test_what_cannot_be_is_said_before_the_run() -> None:
    with pytest.raises(PipelineError, match=r"partition_custom 'custom'.*'m'"):
        stream().partition_custom(lambda key, n: 0, "m")
    with pytest.raises(PipelineError, match="is not a function"):
        stream().partition_custom(3, "k")  # type: ignore[arg-type]
