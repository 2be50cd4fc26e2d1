"""Functions of SQL scripts under test that hold a table's rows, or the results, at a chosen row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import flowrun
from tests.recovery.gates import Gate

GATES = {name: Gate() for name in "abc"}
RESULTS = Gate()
FUNCTIONS = "SET 'flowrun.functions' = 'tests';\n" + "".join(
    f"CREATE FUNCTION gate_{name} AS 'tests.sql.recovery_gates.gate_{name}' LANGUAGE PYTHON;\n"
    for name in (*GATES, "results")
)


def _passed(gate: Gate, column: pa.Array) -> pa.Array:
    gate.passed(len(column))
    return pa.array(np.ones(len(column), np.bool_))


@flowrun.udf(result="BOOLEAN", arguments=["BIGINT"], vectorised=True, deterministic=False)
def gate_a(column: pa.Array) -> pa.Array:
    """True for every row of table `a` once it may pass."""
    return _passed(GATES["a"], column)


@flowrun.udf(result="BOOLEAN", arguments=["BIGINT"], vectorised=True, deterministic=False)
def gate_b(column: pa.Array) -> pa.Array:
    """True for every row of table `b` once it may pass."""
    return _passed(GATES["b"], column)


@flowrun.udf(result="BOOLEAN", arguments=["BIGINT"], vectorised=True, deterministic=False)
def gate_c(column: pa.Array) -> pa.Array:
    """True for every row of table `c` once it may pass."""
    return _passed(GATES["c"], column)


@flowrun.udf(result="BOOLEAN", vectorised=True, deterministic=False)
def gate_results(column: pa.Array) -> pa.Array:
    """True for every row of the result once it may pass."""
    return _passed(RESULTS, column)
