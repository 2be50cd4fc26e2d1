"""An inner join whose state grows to `ROWS` rows, in a process of its own: `python -m benchmarks.join_job`. Prints JSON.

Batches of the two inputs come in turn. Each row of the left one has a new key, each of the right one the key of any left row so far, so
that as many pairs come out at the end as at the beginning, from all over the state. They are counted and dropped.
"""

from __future__ import annotations

import json
import resource
import time

import numpy as np
import pyarrow as pa

from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.operators.joins.factories import RegularJoinFactory
from flowrun.runtime.process import tune_process
from flowrun.testing.harness import OperatorHarness

ROWS = 10_000_000
MILLION = 1_000_000
BATCH_ROWS = 65_536
SCHEMAS = (Schema.of(k=BIGINT, a=BIGINT, b=BIGINT), Schema.of(k2=BIGINT, c=BIGINT, d=BIGINT))
OUTPUT = Schema((*SCHEMAS[0].fields, *SCHEMAS[1].fields))


class Counted:
    """An output that counts rows."""

    def __init__(self) -> None:
        self.rows = 0

    def emit(self, batch: RecordBatch) -> None:
        self.rows += batch.num_rows


def measure(rows: int) -> list[tuple[int, float]]:
    """(rows remembered, seconds so far) after each batch."""
    factory = RegularJoinFactory(schemas=SCHEMAS, keys=((0,), (0,)), output_schema=OUTPUT)
    join = OperatorHarness(factory, inputs=2).operator
    join.output = counted = Counted()
    random = np.random.default_rng(1)
    keys = random.permutation(rows // 2)
    progress, seconds = [(0, 0.0)], 0.0
    for start in range(0, rows // 2, BATCH_ROWS):
        stop = min(start + BATCH_ROWS, rows // 2)
        for key, side in ((keys[start:stop], 0), (random.choice(keys[:stop], stop - start), 1)):
            schema = SCHEMAS[side]
            columns = [pa.array(c) for c in (key, 2 * key, key + 1)]
            batch = RecordBatch(pa.RecordBatch.from_arrays(columns, schema=schema.arrow))
            began = time.perf_counter()
            join.process_batch(batch, side)
            seconds += time.perf_counter() - began
            progress.append((progress[-1][0] + len(key), seconds))
    assert counted.rows == rows // 2
    return progress


def rate(progress: list[tuple[int, float]], first: int, last: int) -> float:
    """Rows a second while from `first` to `last` rows are added."""
    chosen = [p for p in progress if first <= p[0] <= last]
    return (chosen[-1][0] - chosen[0][0]) / (chosen[-1][1] - chosen[0][1])


def main() -> None:
    tune_process()
    pa.set_cpu_count(1)
    measure(BATCH_ROWS // 4)  # what is loaded when it is first used
    progress = measure(ROWS)
    steps = np.diff([seconds for _, seconds in progress])
    print(
        json.dumps(
            {
                "first_million": rate(progress, 0, MILLION),
                "last_million": rate(progress, ROWS - MILLION, ROWS),
                "all": ROWS / progress[-1][1],
                "longest_ms": 1000 * float(steps.max()),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
