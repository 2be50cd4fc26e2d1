"""Aligned windows of plans as operators know them."""

from __future__ import annotations

from flowrun.operators.timed.assigners import AlignedSlices, CumulativeSlices, SlidingSlices, TumblingSlices
from flowrun.plan.windows import CumulativeWindow, SlidingWindow, TumblingWindow


def aligned_slices(window: TumblingWindow | SlidingWindow | CumulativeWindow) -> AlignedSlices:
    """The slices of an aligned window."""
    match window:
        case TumblingWindow():
            return TumblingSlices(window.size_ms, window.offset_ms)
        case SlidingWindow():
            return SlidingSlices(window.size_ms, window.slide_ms, window.offset_ms)
        case CumulativeWindow():
            return CumulativeSlices(window.size_ms, window.step_ms, window.offset_ms)
