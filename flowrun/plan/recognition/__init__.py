"""From the general nodes that queries are written in to the special ones that keep less state."""

from flowrun.plan.recognition.recognition import recognise

__all__ = ["recognise"]
