"""Windows over TIMESTAMP_LTZ in a session with a time zone: days begin at local midnight, also where clocks are changed."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from flowrun.errors import PipelineError
from flowrun.runners.compile import compile_pipeline
from tests.end_to_end.running import bag, json_rows, run_file
from tests.slices import everyday
from tests.sql.local_days import EPOCH, MS, ZONES, Event, Windows, aligned, events, local, sessions, shown, tumbling
from tests.sql.recovery_gates import FUNCTIONS
from tests.sql.recovery_runs import Job

HOUR, DAY = 3_600_000, 86_400_000
TABLE = """
SET 'table.local-time-zone' = '{zone}';
CREATE TABLE {name} (id BIGINT, k STRING, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{folder}/in.csv');
CREATE TABLE r (k STRING, s TIMESTAMP(3), e TIMESTAMP(3), n BIGINT, ids BIGINT, t TIMESTAMP_LTZ(3))
WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{folder}/out');
"""
RESULT = "k, window_start, window_end, COUNT(*), SUM(id), window_time"
KEYS = "k, window_start, window_end, window_time"
ALIGNED: dict[str, Windows] = {
    "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' DAY)": tumbling(DAY),
    "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)": tumbling(HOUR),
    "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '6' HOUR)": tumbling(DAY, 6 * HOUR),
    "HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '3' HOUR)": Windows(3 * HOUR, HOUR),
    "HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '30' MINUTE, INTERVAL '1' DAY)": Windows(DAY, HOUR // 2),
    "CUMULATE(TABLE a, DESCRIPTOR(ts), INTERVAL '3' HOUR, INTERVAL '1' DAY)": Windows(DAY, DAY, 0, 3 * HOUR),
}


def script(folder: Path, zone: str, rows: list[Event], query: str, name: str = "a") -> Path:
    (folder / "in.csv").write_text("".join(f"{r.csv}\n" for r in rows))
    path = folder / "script.sql"
    path.write_text(TABLE.format(zone=zone, folder=folder, name=name) + query)
    return path


def results(folder: Path, zone: str, rows: list[Event], query: str, **settings: object) -> list[dict[str, Any]]:
    run_file(script(folder, zone, rows, query), **settings)
    return json_rows(folder / "out")


@pytest.mark.parametrize(("window", "zone"), everyday(product(ALIGNED, ZONES), 4))
def test_aligned_windows_begin_by_the_clocks_of_the_zone(zone: str, window: str, tmp_path: Path) -> None:
    rows = events(zone, 1)
    wanted = bag(aligned(rows, zone, ALIGNED[window]))
    query = f"INSERT INTO r SELECT {RESULT} FROM TABLE({window}) GROUP BY {KEYS};"
    for number, (parallelism, batch_rows) in enumerate([(1, 1), (3, 7), (1, 10_000)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert bag(results(folder, zone, rows, query, parallelism=parallelism, batch_rows=batch_rows)) == wanted


@pytest.mark.parametrize("zone", ZONES)
def test_rows_get_the_windows_that_aggregates_have(zone: str, tmp_path: Path) -> None:
    rows = events(zone, 2)
    window = "HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '3' HOUR)"
    query = f"INSERT INTO r SELECT k, window_start, window_end, 1, id, window_time FROM TABLE({window});"
    each = [w for row in rows for w in aligned([row], zone, Windows(3 * HOUR, HOUR))]
    assert bag(results(tmp_path, zone, rows, query)) == bag(each)


@pytest.mark.parametrize("zone", everyday(ZONES, 4))
@pytest.mark.parametrize("parallelism", everyday([3, 1], 2))
def test_sessions_go_by_local_times(zone: str, parallelism: int, tmp_path: Path) -> None:
    rows = events(zone, 3)
    window = "SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '31' MINUTE)"
    query = f"INSERT INTO r SELECT {RESULT} FROM TABLE({window}) GROUP BY {KEYS};"
    found = results(tmp_path, zone, rows, query, parallelism=parallelism, batch_rows=7)
    assert bag(found) == bag(sessions(rows, zone, 31 * HOUR // 60))


@pytest.mark.parametrize("zone", ZONES)
def test_group_windows_are_the_same(zone: str, tmp_path: Path) -> None:
    rows = events(zone, 4)
    w = "(ts, INTERVAL '1' DAY)"
    query = (
        f"INSERT INTO r SELECT k, TUMBLE_START{w}, TUMBLE_END{w}, COUNT(*), SUM(id), TUMBLE_ROWTIME{w} FROM a"
        f" GROUP BY k, TUMBLE{w};"
    )
    assert bag(results(tmp_path, zone, rows, query, batch_rows=7)) == bag(aligned(rows, zone, tumbling(DAY)))


@pytest.mark.parametrize("zone", everyday(ZONES, 4))
@pytest.mark.parametrize("parallelism", everyday([3, 1], 2))
def test_days_of_hours_are_days(zone: str, parallelism: int, tmp_path: Path) -> None:
    """A window over `window_time`: what is sent in the hour that comes twice, or before a gap, is not late and in the right day."""
    rows = events(zone, 5)
    query = f"""
    CREATE VIEW hours AS SELECT k, COUNT(*) AS n, SUM(id) AS ids, window_time AS ts
    FROM TABLE(HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' HOUR)) GROUP BY {KEYS};
    INSERT INTO r SELECT k, window_start, window_end, SUM(n), SUM(ids), window_time
    FROM TABLE(TUMBLE(TABLE hours, DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY {KEYS};
    """
    found = results(tmp_path, zone, rows, query, parallelism=parallelism, batch_rows=7)
    assert bag(found) == bag(aligned(rows, zone, tumbling(DAY)))


@pytest.mark.parametrize("zone", everyday(ZONES, 4))
@pytest.mark.parametrize("parallelism", everyday([3, 1], 2))
def test_windows_grouped_again_keep_their_bounds(zone: str, parallelism: int, tmp_path: Path) -> None:
    """Three-hour windows end in gaps, too: their last instants do not tell their ends there."""
    rows = events(zone, 6)
    query = f"""
    INSERT INTO r SELECT 'all', window_start, window_end, SUM(n), SUM(ids), window_time FROM (
      SELECT k, window_start, window_end, window_time, COUNT(*) AS n, SUM(id) AS ids
      FROM TABLE(HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '30' MINUTE, INTERVAL '3' HOUR)) GROUP BY {KEYS})
    GROUP BY window_start, window_end, window_time;
    """
    found = results(tmp_path, zone, rows, query, parallelism=parallelism, batch_rows=7)
    wanted = aligned([Event(r.id, "all", r.ms) for r in rows], zone, Windows(3 * HOUR, HOUR // 2))
    assert bag(found) == bag(wanted)


@pytest.mark.parametrize("zone", everyday(ZONES, len(ZONES)))
@pytest.mark.parametrize("parallelism", everyday([3, 1], 2))
def test_windows_are_joined_and_ranked_when_they_are_over(zone: str, parallelism: int, tmp_path: Path) -> None:
    rows = events(zone, 7)
    query = """
    CREATE VIEW w AS SELECT * FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR));
    CREATE VIEW newest AS SELECT * FROM (SELECT *, ROW_NUMBER() OVER (
        PARTITION BY window_start, window_end, k ORDER BY id DESC) AS place FROM w) WHERE place <= 2;
    INSERT INTO r SELECT l.k, l.window_start, l.window_end, 2, l.id + p.id, l.window_time FROM newest l JOIN newest p
    ON l.k = p.k AND l.window_start = p.window_start AND l.window_end = p.window_end WHERE l.place = 1 AND p.place = 2;
    """
    found = results(tmp_path, zone, rows, query, parallelism=parallelism, batch_rows=7)
    members: dict[tuple[object, object], list[int]] = {}
    for row in rows:
        (window,) = aligned([row], zone, tumbling(HOUR))
        members.setdefault((row.k, window["s"]), []).append(row.id)
    wanted = []
    for one in aligned(rows, zone, tumbling(HOUR)):
        last = sorted(members[one["k"], one["s"]])[-2:]
        if len(last) == 2:
            wanted.append({**one, "n": 2, "ids": sum(last)})
    assert bag(found) == bag(wanted)


def test_the_hour_that_comes_twice_is_one_window_which_closes_once(tmp_path: Path) -> None:
    """In Berlin 02:00 to 03:00 of 27 October 2024 is 00:00Z to 02:00Z. A row that comes behind the first 03:00 is not late."""
    zero = 1_729_987_200_000  # 2024-10-27T00:00Z
    minutes = [
        30,
        59,
        61,
        45,
        119,
        125,
        100,
    ]  # 45 comes behind 61, while the hour is on; 100 comes behind 125, when it is over
    rows = [Event(i, "a", zero + m * 60_000) for i, m in enumerate(minutes)]
    query = (
        f"INSERT INTO r SELECT {RESULT} FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY {KEYS};"
    )
    found = sorted(results(tmp_path, "Europe/Berlin", rows, query, batch_rows=1), key=lambda r: str(r["s"]))
    assert [(r["s"], r["e"], r["n"]) for r in found] == [
        ("2024-10-27 02:00:00", "2024-10-27 03:00:00", 5),
        ("2024-10-27 03:00:00", "2024-10-27 04:00:00", 1),
    ]
    assert found[0]["t"] == shown(zero + 2 * HOUR - 1) + "Z"


@pytest.mark.parametrize("seed", everyday(range(6), 3))
def test_goes_on_from_snapshots_as_if_nothing_had_happened(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    zone = ZONES[seed % 4]
    rows = events(zone, seed)
    window = list(ALIGNED)[seed % len(ALIGNED)]
    query = f"""
    CREATE VIEW a AS SELECT * FROM a_rows WHERE gate_a(id);
    INSERT INTO r SELECT {RESULT} FROM TABLE({window}) GROUP BY {KEYS};
    """
    path = script(tmp_path, zone, rows, FUNCTIONS + query, "a_rows")
    job = Job(path, tmp_path, {"a": len(rows)})
    for _ in range(3):
        if not job.interrupt(chance):
            break
    job.finish(chance.choice([1, 2, 3]))
    assert bag(json_rows(tmp_path / "out")) == bag(aligned(rows, zone, ALIGNED[window])), job.log


@pytest.mark.parametrize("zone", ZONES)
def test_functions_and_casts_read_instants_by_the_clocks_of_the_zone(zone: str, tmp_path: Path) -> None:
    rows = events(zone, 8)
    query = """
    CREATE TABLE f (id BIGINT, a STRING, b BIGINT, c STRING, d DATE, e TIMESTAMP(3), f BOOLEAN, g STRING, h BOOLEAN, i BOOLEAN, j BIGINT)
    WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{folder}/functions');
    INSERT INTO f SELECT id, CAST(ts AS STRING), EXTRACT(HOUR FROM ts), DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm:ss'), CAST(ts AS DATE),
      CAST(ts AS TIMESTAMP(3)), CAST(FLOOR(ts TO DAY) AS TIMESTAMP(3)) = FLOOR(CAST(ts AS TIMESTAMP(3)) TO DAY), FROM_UNIXTIME(ms / 1000),
      CAST(CAST(CAST(ts AS STRING) AS TIMESTAMP_LTZ(3)) AS TIMESTAMP(3)) = CAST(ts AS TIMESTAMP(3)),
      TO_TIMESTAMP_LTZ(0, 3) = TIMESTAMP '{epoch}' AND TO_TIMESTAMP_LTZ(0, 3) = '{epoch}',
      EXTRACT(EPOCH FROM ts) FROM a;
    """.replace("{folder}", str(tmp_path)).replace("{epoch}", f"{EPOCH + local(0, zone) * MS:%Y-%m-%d %H:%M:%S}")
    results(tmp_path, zone, rows, query)
    for found in json_rows(tmp_path / "functions"):
        at = EPOCH + local(rows[int(str(found["id"]))].ms, zone) * MS
        text = at.isoformat(sep=" ", timespec="milliseconds")
        assert found["a"] == text
        assert found["b"] == at.hour
        assert found["c"] == found["g"] == text[:19]
        assert found["d"] == text[:10]
        assert found["e"] == shown((at - EPOCH) // MS)
        assert found["f"] is True
        assert found["h"] is True
        assert found["i"] is True
        assert found["j"] == (at - EPOCH) // MS // 1000


YAML = """
sources:
  a:
    connector: filesystem
    format: csv
    path: {folder}/in.csv
    schema: {{id: BIGINT, k: STRING, ms: BIGINT}}
    computed: {{ts: "TO_TIMESTAMP_LTZ(ms, 3)"}}
    watermark: {{column: ts, delay: 1s}}
steps:
  days:
    from: a
    key_by: [k]
    window: {window}
    aggregate: [COUNT(*) AS n, SUM(id) AS ids, window_time]
  r: {{from: days, select: [k, window_start AS s, window_end AS e, n, ids, window_time AS t]}}
sinks:
  out: {{from: r, connector: filesystem, format: json, path: {folder}/out}}
"""


@pytest.mark.parametrize(
    ("more", "zone"), everyday(product(["", ", trigger: {every: 100d}", ", late_output: late"], ZONES), 4)
)
def test_yaml_windows_name_their_zone(zone: str, more: str, tmp_path: Path) -> None:
    rows = events(zone, 9)
    script(tmp_path, zone, rows, "")
    window = f"{{type: sliding, size: 1d, slide: 1h, offset: 30m, time_zone: {zone}{more}}}"
    path = tmp_path / "p.yaml"
    path.write_text(YAML.format(folder=tmp_path, window=window))
    run_file(path, parallelism=2, batch_rows=7)
    wanted = aligned(rows, zone, Windows(DAY, HOUR, HOUR // 2))
    if zone == "UTC":  # there YAML's window_time is a TIMESTAMP, as without a zone
        wanted = [{**w, "t": str(w["t"]).rstrip("Z")} for w in wanted]
    assert bag(json_rows(tmp_path / "out")) == bag(wanted)


def test_unknown_zones_and_functions_without_meaning_are_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"'Europe/Berln' is not a time zone"):
        compile_pipeline(
            script(tmp_path, "Europe/Berln", [], "INSERT INTO r SELECT k, ts, ts, 1, 1, ts FROM a;"), {}, {}
        )
    query = "INSERT INTO r SELECT k, ts, ts, UNIX_TIMESTAMP(k), 1, ts FROM a;"
    with pytest.raises(PipelineError, match="UNIX_TIMESTAMP of a text reads it as UTC"):
        compile_pipeline(script(tmp_path, "Europe/Berlin", [], query), {}, {})


@pytest.mark.parametrize("zone", ZONES)
def test_computed_columns_of_lookup_tables_go_by_the_zone_of_the_session(zone: str, tmp_path: Path) -> None:
    rows = events(zone, 3)
    table = "(id BIGINT, k STRING, ms BIGINT, {columns}) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{folder}/in.csv');"
    texts = [
        f"SET 'table.local-time-zone' = '{zone}';",
        "CREATE TABLE a " + table.format(columns="p AS PROCTIME()", folder=tmp_path),
        "CREATE TABLE b "
        + table.format(
            columns="t AS CAST(TO_TIMESTAMP_LTZ(ms, 3) AS STRING), h AS HOUR(TO_TIMESTAMP_LTZ(ms, 3))", folder=tmp_path
        ),
        "CREATE TABLE r (id BIGINT, t STRING, h BIGINT, t2 STRING, h2 BIGINT) "
        f"WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{tmp_path}/out');",
        "INSERT INTO r SELECT a.id, b.t, b.h, CAST(TO_TIMESTAMP_LTZ(b.ms, 3) AS STRING), HOUR(TO_TIMESTAMP_LTZ(b.ms, 3)) "
        "FROM a JOIN b FOR SYSTEM_TIME AS OF a.p ON a.id = b.id AND b.t <> '';",
    ]
    script(tmp_path, zone, rows, "")
    (tmp_path / "script.sql").write_text("\n".join(texts))
    run_file(tmp_path / "script.sql")
    found = json_rows(tmp_path / "out")
    assert len(found) == len(rows)
    for row in found:
        assert (row["t"], row["h"]) == (row["t2"], row["h2"])
