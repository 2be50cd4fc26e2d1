"""Whole pipelines on the tests' Spark session, their sources shuffled: an answer that owes something to the order of rows shows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import flowrun.spark.input.scan as scans
from flowrun.core.clock import SystemClock
from flowrun.runners.compile import compile_pipeline
from flowrun.spark.execution import BatchResult, execute
from flowrun.spark.frame import SparkFrame
from flowrun.spark.output.staging import OutputJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = {"settings.mode": "batch"}


@pytest.fixture
def shuffled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans give their rows in any order and any partition; what they number was numbered before."""
    from pyspark.sql import functions

    read = scans.read_scan

    def read_shuffled(node: object, inputs: object, context: object) -> SparkFrame:
        frame: SparkFrame = read(node, inputs, context)  # type: ignore[arg-type]
        return replace(frame, data=frame.data.repartition(3).sortWithinPartitions(functions.rand(7)))

    monkeypatch.setattr(scans, "read_scan", read_shuffled)


def run_on_spark(session: SparkSession, pipeline: Path, variables: Mapping[str, str]) -> BatchResult:
    """Run a pipeline file as a batch."""
    plan = compile_pipeline(pipeline, variables, BATCH).optimised
    return execute(plan, session, OutputJob(plan.name, "all", uuid.uuid4().hex), SystemClock().now_ms())
