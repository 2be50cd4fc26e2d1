"""Vectorised partial aggregation: lift rows to partial results, merge them, finish them. Shared by all window operators."""

from flowrun.core.semantics import NullKeys
from flowrun.operators.aggregation.engine import AggregationEngine, Bundle
from flowrun.operators.aggregation.keys import KeyCodec, apply_null_keys
from flowrun.operators.aggregation.layout import PartialLayout

__all__ = ["AggregationEngine", "Bundle", "KeyCodec", "NullKeys", "PartialLayout", "apply_null_keys"]
