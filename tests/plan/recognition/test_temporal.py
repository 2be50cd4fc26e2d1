"""FOR SYSTEM_TIME AS OF: versions by rowtime, current rows, and lookups in outside tables."""

from __future__ import annotations

import pytest

from tests.plan.recognition.queries import planned, problems, shape

VERSIONS = """CREATE VIEW v AS SELECT currency, rate{more}, ts AS t FROM
  (SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY ts DESC) rn FROM plain) WHERE rn = 1{where};"""
JOINED = (
    "SELECT o.id, r.rate FROM orders o LEFT JOIN {right} FOR SYSTEM_TIME AS OF o.{time} AS r ON o.currency = r.currency"
)


def test_a_table_with_primary_key_and_watermark_is_versioned() -> None:
    assert shape(planned(JOINED.format(right="rates", time="ts"))) == [
        "TemporalJoin left on (currency = currency) at ts event"
    ]


def test_a_view_of_last_rows_is_read_before_it_is_deduplicated() -> None:
    """Every row of it is a version."""
    view = VERSIONS.format(more=" * 2 AS rate", where="")
    assert shape(planned(view + JOINED.format(right="v", time="ts"))) == [
        "TemporalJoin left on (currency = currency) at t event"
    ]


def test_the_time_of_versions_need_not_be_a_column_of_the_view() -> None:
    view = VERSIONS.format(more="", where="").replace(", ts AS t", "")
    plan = planned(view + JOINED.format(right="v", time="ts"))
    assert shape(plan) == ["TemporalJoin left on (currency = currency) at $2 event"]
    assert plan.sinks[0].input.schema.names == ("id", "rate")


def test_a_filter_above_the_last_rows_is_asked_of_the_version_that_is_found() -> None:
    """A version that does not pass ends the one before: it must be among those that the join knows."""
    view = VERSIONS.format(more="", where=" AND rate > 2")
    (line,) = shape(planned(view + JOINED.format(right="v", time="ts")))
    assert line == "TemporalJoin left on (currency = currency) at ts event if $3"


def test_other_conditions_are_tested_on_the_version() -> None:
    query = JOINED.format(right="rates", time="ts") + " AND r.rate > 1 AND o.amount < r.rate AND o.ts > r.ts"
    (line,) = shape(planned(query))
    assert line.startswith("TemporalJoin left on (currency = currency) at ts event if (")
    assert line.count("AND") == 2


def test_a_key_computed_on_the_left() -> None:
    plan = planned(
        "SELECT o.id, r.rate FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON UPPER(o.currency) = r.currency"
    )
    assert shape(plan) == ["TemporalJoin inner on ($6 = currency) at ts event"]


def test_in_processing_time_the_current_row_is_joined() -> None:
    view = VERSIONS.format(more="", where="")
    assert shape(planned(view + JOINED.format(right="v", time="p"))) == [
        "Deduplicate last by (currency) event",
        "TemporalJoin left on (currency = currency) processing",
    ]


def test_a_table_that_can_be_looked_up_is() -> None:
    query = (
        "SELECT o.id, s.v FROM orders o LEFT JOIN side FOR SYSTEM_TIME AS OF o.p AS s ON o.currency = s.k AND s.active"
    )
    assert shape(planned(query)) == ["LookupJoin left side on (currency = k) if active"]


def test_projections_and_filters_of_the_table_go_into_the_lookup() -> None:
    view = "CREATE VIEW active AS SELECT UPPER(v) AS w, k FROM side WHERE active;"
    query = "SELECT o.id, s.w FROM orders o JOIN active FOR SYSTEM_TIME AS OF o.p AS s ON CAST(MOD(o.id, 9) AS STRING) = s.k"
    plan = planned(view + query)
    assert shape(plan) == ["LookupJoin inner side on (CAST(MOD(id, 9) AS STRING) = k) if active"]
    assert plan.sinks[0].input.schema.names == ("id", "w")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (JOINED.format(right="plain", time="ts"), "FOR SYSTEM_TIME AS OF 'ts' needs versions on its right side"),
        (
            JOINED.format(right="rates", time="ts").replace("o.currency = r.currency", "o.amount = r.rate"),
            "FOR SYSTEM_TIME AS OF needs an equality on the key of its right side (currency)",
        ),
        (
            JOINED.format(right="rates", time="ts")
            .replace("orders o", "(SELECT *, ts + INTERVAL '1' DAY AS next FROM orders) o")
            .replace("o.ts", "o.next"),
            "FOR SYSTEM_TIME AS OF needs a time attribute, but 'next' is an ordinary TIMESTAMP(3) column",
        ),
        (
            "SELECT o.id FROM orders o JOIN side FOR SYSTEM_TIME AS OF o.p AS s ON o.amount > 3",
            "FOR SYSTEM_TIME AS OF: looking up 'side' needs an equality with one of its columns",
        ),
        (
            JOINED.format(right="plain", time="p"),
            "FOR SYSTEM_TIME AS OF a processing time needs a table that can be looked up, or one row a key, on its right side",
        ),
    ],
)
def test_what_is_missing_is_named(query: str, message: str) -> None:
    (problem,) = problems(query)
    assert problem.startswith(message)
