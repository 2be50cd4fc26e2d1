"""SET and RESET: Flink's keys as settings of the pipeline, checked at their place."""

from __future__ import annotations

import pytest

from flowrun.core.recovery import CheckpointSettings, RestartSettings
from flowrun.plan.nodes import Settings
from tests.frontend.sql.script.scripts import ORDERS, load, problems

QUERY = ORDERS + "SELECT id FROM orders;"


def settings(sets: str, **overrides: str) -> Settings:
    given = {f"settings.{k}": v for k, v in overrides.items()}
    return load(sets + QUERY, overrides=given).plan.settings


def test_keys_of_flink() -> None:
    found = settings(
        "SET 'parallelism.default' = '3'; SET 'pipeline.max-parallelism' = '64'; SET 'table.exec.state.ttl' = '1 h';"
        "SET 'execution.checkpointing.interval' = '10 s'; SET 'execution.checkpointing.mode' = 'AT_LEAST_ONCE';"
        "SET 'state.checkpoints.dir' = 'state'; SET 'execution.checkpointing.min-pause' = '500';"
        "SET 'restart-strategy' = 'fixed-delay'; SET 'restart-strategy.fixed-delay.attempts' = '7';"
        "SET 'restart-strategy.failure-rate.delay' = '9 s'; SET 'execution.runtime-mode' = 'streaming';"
    )
    assert (found.parallelism, found.max_parallelism, found.state_ttl_ms) == (3, 64, 3_600_000)
    assert found.checkpoint == CheckpointSettings(10_000, mode="at_least_once", directory="state", min_pause_ms=500)
    assert found.restart == RestartSettings("fixed_delay", attempts=7)


def test_keys_without_quotes_and_flowrun_s_own() -> None:
    found = settings(
        "SET parallelism.default = 2; SET flowrun.batch_rows = 64; SET 'flowrun.checkpoint.interval' = '5s';"
    )
    assert (found.parallelism, found.batch_rows) == (2, 64)
    assert found.checkpoint == CheckpointSettings(5_000)


def test_the_pipeline_s_name() -> None:
    assert load("SET 'pipeline.name' = 'My job';" + QUERY).plan.name == "My job"


def test_the_command_line_wins() -> None:
    assert settings("SET 'parallelism.default' = '3';", parallelism="5").parallelism == 5


def test_settings_count_as_they_are_at_the_last_query() -> None:
    text = "SET 'parallelism.default' = '3';" + QUERY + "SET 'parallelism.default' = '4';"
    assert load(text).plan.settings.parallelism == 3
    assert load("SET 'parallelism.default' = '3'; RESET 'parallelism.default';" + QUERY).plan.settings.parallelism == 1
    assert load("SET 'parallelism.default' = '3'; RESET;" + QUERY).plan.settings.parallelism == 1


def test_what_flink_ignores_is_ignored() -> None:
    found = settings(
        "SET 'state.checkpoints.dir' = 'state'; SET 'restart-strategy.fixed-delay.attempts' = '7';"
        "SET 'pipeline.max-parallelism' = '-1'; SET 'execution.checkpointing.aligned-checkpoint-timeout' = '1 s';"
    )
    assert found == Settings()
    assert settings("SET 'execution.checkpointing.interval' = '0';").checkpoint is None


@pytest.mark.parametrize("key", ["table.exec.mini-batch.enabled", "sql-client.execution.result-mode", "table.dml-sync"])
def test_what_holds_anyway_is_accepted_in_silence(key: str) -> None:
    assert not load(f"SET '{key}' = 'true';" + QUERY).diagnostics


@pytest.mark.parametrize(
    ("statement", "message", "hint"),
    [
        ("SET 'table.optimizer.reuse-source-enabled' = 'true'", "has no effect here", None),
        ("SET 'execution.checkpointing.intervall' = '10s'", "has no effect here", "execution.checkpointing.interval"),
        ("SET 'paralelism' = '2'", "there is no setting 'paralelism'", "parallelism.default"),
    ],
)
def test_unknown_keys_are_warnings(statement: str, message: str, hint: str | None) -> None:
    (warning,) = load(statement + ";" + QUERY).diagnostics
    assert message in warning.message
    assert (hint or "") in (warning.hint or "")


@pytest.mark.parametrize(
    ("statement", "place", "message"),
    [
        ("SET 'parallelism.default' = 'many'", "1:29", "'parallelism.default' expects a whole number of at least 1, or auto, got 'many'"),
        ("SET 'execution.checkpointing.interval' = '10x'", "1:42", "'execution.checkpointing.interval' expects a duration"),
        ("SET 'restart-strategy' = 'sometimes'", "1:26", "'restart-strategy' must be one of none, fixed_delay"),
        ("SET 'table.exec.state.ttl' = 'long'", "1:30", "'table.exec.state.ttl' expects a duration"),
        ("SET 'table.local-time-zone' = 'Asia/Tokio'", "1:31", "'Asia/Tokio' is not a time zone"),
        ("SET 'execution.runtime-mode' = 'bath'", "1:32", "'execution.runtime-mode' must be one of streaming, batch"),
        ("SET 'flowrun.batch_row' = '1'", "1:5", "there is no setting 'flowrun.batch_row'"),
        ("SET 'execution.checkpointing.interval' = '1s'; SET 'execution.checkpointing.max-concurrent-checkpoints' = '0'", "1:107",
         "'execution.checkpointing.max-concurrent-checkpoints' must be at least 1"),
    ],
)  # fmt: skip
def test_wrong_values_are_errors_at_their_place(statement: str, place: str, message: str) -> None:
    shown = problems(statement + ";\n" + QUERY)
    assert f"s.sql:{place}: error: {message}" in shown


def test_a_bare_set_lists_what_is_set() -> None:
    assert load("SET 'parallelism.default' = '3'; SET; " + QUERY).outputs == ("'parallelism.default' = '3'",)


def test_a_setting_between_queries_counts_for_all_of_them_and_that_is_said() -> None:
    loaded = load(QUERY + "SET 'parallelism.default' = '4'; SELECT buyer FROM orders;")
    assert loaded.plan.settings.parallelism == 4
    (warning,) = loaded.diagnostics
    assert "all queries of a script run as one job" in warning.message
