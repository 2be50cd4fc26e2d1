"""Harnesses for testing operators, sources, sinks and functions without threads, processes or wall time."""

from flowrun.testing.harness import OperatorHarness
from flowrun.testing.metrics import RecordedMetrics
from flowrun.testing.output import CollectedOutput, ContractViolationError, rows_of
from flowrun.testing.processing_time import ManualProcessingTime
from flowrun.testing.source_harness import SourceHarness

__all__ = [
    "CollectedOutput",
    "ContractViolationError",
    "ManualProcessingTime",
    "OperatorHarness",
    "RecordedMetrics",
    "SourceHarness",
    "rows_of",
]
