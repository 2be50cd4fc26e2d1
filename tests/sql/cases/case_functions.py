"""Python functions that the cases call."""

from __future__ import annotations

import flowrun


@flowrun.udf(result="STRING")
def masked(text: str) -> str:
    """All but the last character hidden."""
    return "*" * (len(text) - 1) + text[-1:]
