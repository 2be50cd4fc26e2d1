"""Steps whose function reads two streams: by row and by batch, with keys and without, whatever the batches and the parallelism."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flowrun.errors import JobFailedError
from tests.end_to_end.running import json_rows, run_text
from tests.frontend.yaml.small_runs import results

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


BROADCAST = """
  both:
    from: orders
    key_by: k
    null_keys: NULLS
    broadcast: {with: rates, states: [rates]}
    process:
      function: tests.end_to_end.co_functions:FUNCTION
      with: {bad: BAD}
      schema: {k: STRING, id: BIGINT, rate: BIGINT}
      side_outputs: {unpriced: {k: STRING, id: BIGINT, rate: BIGINT}}
"""


def stamp(ms: int) -> str:
    return f"2024-03-01 10:{ms // 60_000:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}"


def write_inputs(folder: Path, seed: int, rows: int = 300) -> tuple[list[Row], list[Row]]:
    """Orders and rates in nearly ascending event time: no row is late. Each rate has a time of its own."""
    chance = random.Random(seed)
    orders = [{"k": chance.choice(KEYS), "id": i, "at": i * 40 - chance.randrange(2000) + 2000} for i in range(rows)]
    rates = [
        {"name": chance.choice(KEYS[:2] + KEYS[3:]), "rate": i, "at": i * 240 - chance.randrange(1500) + 3000}
        for i in range(rows // 6)
    ]
    rates = list({r["at"]: r for r in rates}.values())
    for name, given in (("orders", orders), ("rates", rates)):
        (folder / name).mkdir()
        lines = [json.dumps({**{k: v for k, v in r.items() if k != "at"}, "ts": stamp(r["at"])}) + "\n" for r in given]
        (folder / name / "rows.json").write_text("".join(lines))
    return orders, rates


def priced(
    orders: list[Row], rates: list[Row], *, nulls: bool, by_all: bool = False
) -> tuple[Counter[Any], Counter[Any]]:
    """(orders with a rate, those without), row by row."""
    found: tuple[Counter[Any], Counter[Any]] = (Counter(), Counter())
    for order in orders:
        if order["k"] is None and not nulls:
            continue
        known = [(r["at"], r["rate"]) for r in rates if (by_all or r["name"] == order["k"]) and r["at"] <= order["at"]]
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
    text = BROADCAST if function.startswith("PricedByAll") else PRICED
    return text.replace("FUNCTION", function).replace("NULLS", nulls).replace("BAD", str(bad))


@pytest.mark.parametrize("by_all", [False, True], ids=["connect", "broadcast"])
@pytest.mark.parametrize("nulls", ["group", "drop"])
@pytest.mark.parametrize(("parallelism", "batch_rows"), [(1, 131_072), (2, 7), (1, 1)])
def test_what_rows_of_both_streams_come_to(
    tmp_path: Path, parallelism: int, batch_rows: int, nulls: str, by_all: bool
) -> None:
    orders, rates = write_inputs(tmp_path, parallelism)
    function = "PricedByAll" if by_all else "Priced"
    found = run(tmp_path, step(function, nulls), sinks=UNPRICED, parallelism=parallelism, batch_rows=batch_rows)
    wanted = priced(orders, rates, nulls=nulls == "group", by_all=by_all)
    assert (found, values(tmp_path / "unpriced")) == wanted
    assert all(wanted)


@pytest.mark.parametrize("by_all", [False, True], ids=["connect", "broadcast"])
@pytest.mark.parametrize(("parallelism", "batch_rows"), [(1, 131_072), (2, 7), (1, 1)])
def test_functions_on_batches_give_the_same(tmp_path: Path, parallelism: int, batch_rows: int, by_all: bool) -> None:
    orders, rates = write_inputs(tmp_path, batch_rows)
    steps = step("PricedByAllBatches" if by_all else "PricedBatches").replace("with: {bad: -1}", "")
    found = run(tmp_path, steps.replace("side_outputs", "#"), parallelism=parallelism, batch_rows=batch_rows)
    assert found == priced(orders, rates, nulls=True, by_all=by_all)[0]


@pytest.mark.parametrize("function", ["Priced", "PricedBatches", "PricedByAll"])
def test_in_batch_mode_the_keys_come_one_after_the_other(tmp_path: Path, function: str) -> None:
    orders, rates = write_inputs(tmp_path, 8)
    steps = step(function)
    if function == "PricedBatches":
        steps = steps.replace("with: {bad: -1}", "").replace("side_outputs", "#")
    found = run(tmp_path, steps, parallelism=2, embedded_mode="batch")
    assert found == priced(orders, rates, nulls=True, by_all=function == "PricedByAll")[0]


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


def test_a_stream_may_be_connected_with_itself_and_with_outputs_of_other_steps(tmp_path: Path) -> None:
    orders, _ = write_inputs(tmp_path, 10)
    steps = """
  parts: {from: orders, filter: id < 100, split: {even-ones: id % 2 = 0}}
  itself:
    from: orders
    filter: id < 10
    select: [k, id, ts]
    connect: orders-as-rates
    process: &tagged {function: "tests.end_to_end.co_functions:Tagged", schema: {k: STRING, n: BIGINT, stream: STRING}}
  orders-as-rates: {from: orders, select: [k, id AS rate]}
  branches:
    from: parts
    connect: {with: renamed}
    process: *tagged
  renamed: {from: even-ones, select: [k, id AS rate]}
  twice:
    from: orders
    key_by: [id % 7 AS g]
    connect: orders
    process: {function: "tests.end_to_end.co_functions:Repeated", schema: {k: STRING, id: BIGINT}}
  shown: {from: twice, select: [k, id AS n, "'twice' AS stream"]}
  both: {union: [itself, branches, shown]}
"""
    wanted = Counter((o["k"], o["id"], "orders") for o in orders if o["id"] < 10)
    wanted.update((o["k"], o["id"], "rates") for o in orders)
    for order in orders[:100]:
        wanted[order["k"], order["id"], "orders" if order["id"] % 2 else "rates"] += 1
    wanted.update((o["k"], o["id"], "twice") for o in orders * 2)
    assert run(tmp_path, steps, parallelism=2) == wanted


@pytest.mark.parametrize("parallelism", [1, 2])
def test_changes_of_a_stream_stay_behind_the_rows_that_they_change(tmp_path: Path, parallelism: int) -> None:
    chance = random.Random(parallelism)
    orders = [{"k": chance.choice("abc"), "id": chance.randrange(4)} for _ in range(200)]
    document = f"""
    settings: {{functions: [tests], batch_rows: 5}}
    sources:
      orders: &source {{connector: filesystem, path: "${{DIR}}/orders", format: json, schema: {{k: STRING, id: BIGINT}}}}
      rates: {{<<: *source, path: "${{DIR}}/rates", schema: {{k: STRING, rate: BIGINT}}}}
    steps:
      totals: {{from: orders, key_by: k, aggregate: SUM(id) AS id}}
      both:
        from: totals
        connect: rates
        parallelism: 3
        process: {{function: "{FUNCTIONS}:Tagged", schema: {{k: STRING, n: BIGINT, stream: STRING}}}}
    sinks:
      out: {{from: both, connector: filesystem, path: "${{DIR}}/out", format: debezium-json}}
    """
    found = results(tmp_path, document, parallelism, orders=orders, rates=[{"k": "z", "rate": 7}])
    totals = {k: sum(o["id"] for o in orders if o["k"] == k) for k in "abc"}
    assert found == sorted([*(f"{k} {n} orders" for k, n in totals.items()), "z 7 rates"])


def test_every_subtask_is_told_all_rows_of_a_broadcast_stream(tmp_path: Path) -> None:
    orders, rates = write_inputs(tmp_path, 6)
    steps = f"""
  both:
    from: orders
    broadcast: rates
    process:
      function: {FUNCTIONS}:Told
      schema: {{k: STRING, id: BIGINT}}
      side_outputs: {{told: {{k: STRING, id: BIGINT}}}}
"""
    sinks = '  told: {from: told, connector: filesystem, path: "FOLDER/told", format: json}\n'
    assert run(tmp_path, steps, sinks=sinks, parallelism=3) == Counter((o["k"], o["id"]) for o in orders)
    assert values(tmp_path / "told") == Counter({(r["name"], n): 3 for n, r in enumerate(rates, 1)})


@pytest.mark.parametrize("by_all", [False, True], ids=["connect", "broadcast"])
@pytest.mark.parametrize(("parallelism", "batch_rows"), [(1, 131_072), (2, 7)])
def test_rows_of_either_stream_that_fail_are_kept_aside_once(
    tmp_path: Path, parallelism: int, batch_rows: int, by_all: bool
) -> None:
    orders, rates = write_inputs(tmp_path, 9)
    steps = step("PricedByAll" if by_all else "Priced", "fail", bad=17)
    found = run(tmp_path, steps, on_error="dead-letter", parallelism=parallelism, batch_rows=batch_rows)
    good = [o for o in orders if o["id"] != 17 and o["k"] is not None]
    known = [r for r in rates if r["rate"] != 17 and (by_all or r["name"] is not None)]
    assert found == priced(good, known, nulls=False, by_all=by_all)[0]
    letters = json_rows(tmp_path / "dead")
    nameless = 0 if by_all else sum(r["name"] is None and r["rate"] != 17 for r in rates)
    bad_rate = next(r for r in rates if r["rate"] == 17)
    without_key = sum(o["k"] is None for o in orders) + nameless + (not by_all and bad_rate["name"] is None)
    kinds = Counter(letter["kind"] for letter in letters)
    assert {letter["place"] for letter in letters} == {"step 'both'"}
    assert kinds["key"] == without_key
    told = Counter(json.loads(str(e["text"])).get("rate", "an order") for e in letters if e["kind"] == "function")
    assert told == Counter({"an order": 1, 17: 1} if by_all or bad_rate["name"] is not None else {"an order": 1})


@pytest.mark.parametrize("side", ["orders", "rates"])
def test_a_null_key_of_either_stream_fails_the_job(tmp_path: Path, side: str) -> None:
    for name in ("orders", "rates"):
        (tmp_path / name).mkdir()
        key = {"orders": "k", "rates": "name"}[name]
        row = {key: None if name == side else "a", "id": 1, "rate": 1, "ts": stamp(0)}
        (tmp_path / name / "rows.json").write_text(json.dumps(row) + "\n")
    with pytest.raises(JobFailedError, match=r"operator 'both'.*key.*NULL"):
        run(tmp_path, step(nulls="fail"))
