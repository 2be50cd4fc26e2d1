"""Steps whose function reads two streams: by row and by batch, with keys and without, whatever the batches and the parallelism."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.running import json_rows, run_text

FUNCTIONS = "tests.end_to_end.co_functions"
PIPELINE = """
settings: {{functions: [tests], on_error: {on_error}, dead_letters: {folder}/dead}}
sources:
  orders: &source
    connector: filesystem
    path: {folder}/orders
    format: json
    schema: {{k: STRING, id: BIGINT, ts: TIMESTAMP(3)}}
    watermark: {{column: ts, delay: 2s}}
  rates:
    <<: *source
    path: {folder}/rates
    schema: {{name: STRING, rate: BIGINT, ts: TIMESTAMP(3)}}
steps:
{steps}
sinks:
  out: {{from: both, connector: filesystem, path: "{folder}/out", format: json}}
"""
PRICED = """
  both:
    from: orders
    key_by: k
    null_keys: NULLS
    connect: {with: rates, key_by: name}
    process:
      function: tests.end_to_end.co_functions:FUNCTION
      with: {bad: BAD}
      schema: {k: STRING, id: BIGINT, rate: BIGINT}
      side_outputs: {unpriced: {k: STRING, id: BIGINT, rate: BIGINT}}
"""
UNPRICED = '  unpriced: {from: unpriced, connector: filesystem, path: "FOLDER/unpriced", format: json}\n'
Row = dict[str, Any]
KEYS = ["a", "b", "c", None]


def stamp(ms: int) -> str:
    return f"2024-03-01 10:{ms // 60_000:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}"


def write_inputs(folder: Path, seed: int, rows: int = 300) -> tuple[list[Row], list[Row]]:
    """Orders and rates in nearly ascending event time: no row is late. Rates of a key have times of their own."""
    chance = random.Random(seed)
    orders = [{"k": chance.choice(KEYS), "id": i, "at": i * 40 - chance.randrange(2000) + 2000} for i in range(rows)]
    rates = [
        {"name": chance.choice(KEYS[:2] + KEYS[3:]), "rate": i, "at": i * 240 - chance.randrange(1500) + 3000}
        for i in range(rows // 6)
    ]
    rates = list({(r["name"], r["at"]): r for r in rates}.values())
    for name, given in (("orders", orders), ("rates", rates)):
        (folder / name).mkdir()
        lines = [json.dumps({**{k: v for k, v in r.items() if k != "at"}, "ts": stamp(r["at"])}) + "\n" for r in given]
        (folder / name / "rows.json").write_text("".join(lines))
    return orders, rates


def priced(orders: list[Row], rates: list[Row], *, nulls: bool) -> tuple[Counter[Any], Counter[Any]]:
    """(orders with a rate, those without), row by row."""
    found: tuple[Counter[Any], Counter[Any]] = (Counter(), Counter())
    for order in orders:
        if order["k"] is None and not nulls:
            continue
        known = [(r["at"], r["rate"]) for r in rates if r["name"] == order["k"] and r["at"] <= order["at"]]
        rate = max(known)[1] if known else None
        found[rate is None][order["k"], order["id"], rate] += 1
    return found


def run(folder: Path, steps: str, *, on_error: str = "fail", sinks: str = "", **settings: object) -> Counter[Any]:
    text = PIPELINE.format(folder=folder, steps=steps, on_error=on_error) + sinks.replace("FOLDER", str(folder))
    run_text(folder, text, **settings)
    return values(folder / "out")


def values(folder: Path) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in json_rows(folder))


def step(function: str = "Priced", nulls: str = "group", bad: int = -1) -> str:
    return PRICED.replace("FUNCTION", function).replace("NULLS", nulls).replace("BAD", str(bad))


@pytest.mark.parametrize("nulls", ["group", "drop"])
@pytest.mark.parametrize(("parallelism", "batch_rows"), [(1, 131_072), (2, 7), (1, 1)])
def test_what_rows_of_both_streams_come_to(tmp_path: Path, parallelism: int, batch_rows: int, nulls: str) -> None:
    orders, rates = write_inputs(tmp_path, parallelism)
    found = run(tmp_path, step(nulls=nulls), sinks=UNPRICED, parallelism=parallelism, batch_rows=batch_rows)
    assert (found, values(tmp_path / "unpriced")) == priced(orders, rates, nulls=nulls == "group")


@pytest.mark.parametrize(("parallelism", "batch_rows"), [(1, 131_072), (2, 7), (1, 1)])
def test_functions_on_batches_give_the_same(tmp_path: Path, parallelism: int, batch_rows: int) -> None:
    orders, rates = write_inputs(tmp_path, batch_rows)
    steps = step("PricedBatches").replace("with: {bad: -1}", "").replace("side_outputs", "#")
    assert run(tmp_path, steps, parallelism=parallelism, batch_rows=batch_rows) == priced(orders, rates, nulls=True)[0]


def test_functions_without_keys(tmp_path: Path) -> None:
    orders, rates = write_inputs(tmp_path, 5)
    steps = f"""
  renamed: {{from: rates, select: [name AS k, rate]}}
  both:
    from: orders
    connect: renamed
    process: {{function: "{FUNCTIONS}:Tagged", schema: {{k: STRING, n: BIGINT, stream: STRING}}}}
"""
    wanted = Counter((o["k"], o["id"], "orders") for o in orders)
    wanted.update((r["name"], r["rate"], "rates") for r in rates)
    assert run(tmp_path, steps, parallelism=2) == wanted
