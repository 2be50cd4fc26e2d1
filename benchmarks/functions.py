"""What each style of a Python function costs: the same computation as a SQL expression, by rows, and by columns of each library.

Rows are divided by the seconds of processor time that the job took, which depend less on what else the machine does than the clock does.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import ENVIRONMENT, Figure

ROUNDS = 3
MODULE = """
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import flowrun
import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc


class Part(NamedTuple):
    part: float


@dataclass
class Sale:
    amount: float
    rate: float


def row(amount: float, rate: float) -> float:
    return amount * (1 + rate)


def record(sale: Sale) -> float:
    return sale.amount * (1 + sale.rate)


def arrow(amount: pa.DoubleArray, rate: pa.DoubleArray) -> pa.DoubleArray:
    return pc.multiply(amount, pc.add(rate, 1.0))


def numpy(amount: npt.NDArray[np.float64], rate: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return amount * (1 + rate)


Doubles = Annotated[pd.Series, "DOUBLE"]


def pandas(amount: Doubles, rate: Doubles) -> Doubles:
    return amount * (1 + rate)


def polars(amount: Annotated[pl.Series, "DOUBLE"], rate: Annotated[pl.Series, "DOUBLE"]) -> Annotated[pl.Series, "DOUBLE"]:
    return amount * (1 + rate)


@flowrun.udtf
def parts_by_row(amount: float) -> Iterator[Part]:
    yield Part(amount / 2)
    yield Part(amount / 2)


@flowrun.udtf(result="part DOUBLE")
def parts_by_numpy(amount: npt.NDArray[np.float64]):
    parents = np.repeat(np.arange(len(amount)), 2)
    return pa.record_batch({"part": amount[parents] / 2}), parents


@dataclass
class Total:
    sum: float = 0.0


class TotalByRow:
    def create_accumulator(self) -> Total:
        return Total()

    def accumulate(self, total: Total, amount: float) -> None:
        total.sum += amount

    def get_value(self, total: Total) -> float:
        return total.sum


class TotalByNumPy(TotalByRow):
    def accumulate(self, total: Total, amount: npt.NDArray[np.float64]) -> None:
        total.sum += float(amount.sum())
"""
SCRIPT = """
SET 'parallelism.default' = '1';
CREATE TABLE sales (k BIGINT NOT NULL, amount DOUBLE NOT NULL, rate DOUBLE NOT NULL) WITH (
  'connector' = 'datagen', 'number-of-rows' = '{rows}', 'rows-per-second' = '1000000000',
  'fields.k.min' = '1', 'fields.k.max' = '100'
);
CREATE TABLE results ({columns}) WITH ('connector' = 'blackhole');
{created}INSERT INTO results {query};
"""
SCALAR, LATERAL = "SELECT {} FROM sales", "SELECT p.part FROM sales CROSS JOIN LATERAL TABLE(f(amount)) AS p (part)"
GROUPED = "SELECT k, {} FROM sales GROUP BY k"

_RUN = """
import sys, time
from pathlib import Path
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
job = compile_pipeline(Path(sys.argv[1])).job_graph
began = time.process_time()
run_embedded(job)
print(time.process_time() - began)
"""
Style = tuple[str, str | None, str, str, int]
"""What it is called, the function, the query, the columns of the sink, and how many rows are measured."""
STYLES: dict[str, tuple[Style, ...]] = {
    "scalar function": (
        ("SQL expression", None, SCALAR.format("amount * (1 + rate)"), "x DOUBLE", 10_000_000),
        ("values of rows", "row", SCALAR.format("f(amount, rate)"), "x DOUBLE", 1_000_000),
        ("a dataclass of each row", "record", SCALAR.format("f(ROW(amount, rate))"), "x DOUBLE", 200_000),
        ("Arrow arrays", "arrow", SCALAR.format("f(amount, rate)"), "x DOUBLE", 10_000_000),
        ("NumPy arrays", "numpy", SCALAR.format("f(amount, rate)"), "x DOUBLE", 10_000_000),
        ("pandas Series", "pandas", SCALAR.format("f(amount, rate)"), "x DOUBLE", 10_000_000),
        ("polars Series", "polars", SCALAR.format("f(amount, rate)"), "x DOUBLE", 10_000_000),
    ),
    "table function, two rows for each": (
        ("rows", "parts_by_row", LATERAL, "part DOUBLE", 200_000),
        ("NumPy arrays", "parts_by_numpy", LATERAL, "part DOUBLE", 10_000_000),
    ),
    "aggregate of 100 groups": (
        ("SQL's SUM", None, GROUPED.format("SUM(amount)"), "k BIGINT, x DOUBLE", 10_000_000),
        ("values of rows", "TotalByRow", GROUPED.format("f(amount)"), "k BIGINT, x DOUBLE", 1_000_000),
        ("NumPy arrays", "TotalByNumPy", GROUPED.format("f(amount)"), "k BIGINT, x DOUBLE", 10_000_000),
    ),
}
LEAST_GAINS = {"scalar function": 5, "table function, two rows for each": 5, "aggregate of 100 groups": 2}
"""How many times the rows of a function on values one on columns takes at least."""


def run() -> list[Figure]:
    figures = []
    for kind, styles in STYLES.items():
        rates: dict[str, list[float]] = {style[0]: [] for style in styles}
        for number in range(ROUNDS + 1):  # in turn, so that all have the same machine; the first round warms up
            for style in styles:
                rate = _rate(style)
                if number:
                    rates[style[0]].append(rate)
        medians = {name: statistics.median(found) for name, found in rates.items()}
        by_rows = next(name for name in medians if name in ("values of rows", "rows"))
        figures += [_figure(kind, name, rate, by_rows, medians[by_rows]) for name, rate in medians.items()]
    return figures


def _figure(kind: str, name: str, rate: float, by_rows: str, slow: float) -> Figure:
    label, value = f"{kind}: {name}", f"{rate / 1e6:.2f} M rows/s"
    if name == by_rows:
        return Figure(label, value)
    ratio = rate / slow
    if not name.endswith(("arrays", "Series")):
        return Figure(label, value, by_rows, f"{ratio:.2f}" if ratio < 1 else f"{ratio:.0f}")
    return Figure(label, value, by_rows, f"{ratio:.0f}", f"≥ {LEAST_GAINS[kind]}", ratio >= LEAST_GAINS[kind])


def _rate(style: Style) -> float:
    """Rows a second of processor time of the running job, in a process of its own."""
    _, function, query, columns, rows = style
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "styles.py").write_text(MODULE)
        created = "" if function is None else f"CREATE FUNCTION f AS 'styles.{function}' LANGUAGE PYTHON;\n"
        script = place / "style.sql"
        script.write_text(SCRIPT.format(rows=rows, columns=columns, created=created, query=query))
        done = subprocess.run(
            [sys.executable, "-c", _RUN, str(script)], capture_output=True, text=True, check=True, env=ENVIRONMENT
        )
    return rows / float(done.stdout)
