"""An aggregate as users write it for their steps."""

from __future__ import annotations

import flowrun


@flowrun.udaf(result="STRING")
class Joined:
    """The different pairs of key and value, in order."""

    def create_accumulator(self) -> list[str]:
        return []

    def accumulate(self, accumulator: list[str], key: str, value: int) -> None:
        accumulator.append(f"{key}{value}")

    def get_value(self, accumulator: list[str]) -> str:
        return ",".join(sorted(set(accumulator)))
