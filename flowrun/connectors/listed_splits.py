"""An enumerator over a fixed list of splits, for bounded sources that know their splits at the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import cast

from flowrun.api.source import JsonValue, Split


class ListedSplitEnumerator:
    """Hands out splits in order; those that came back are handed out first."""

    def __init__(self, splits: Sequence[Split], restored: JsonValue = None) -> None:
        self._splits = deque(splits)
        if restored is not None:
            left = cast(list[dict[str, JsonValue]], restored)
            self._splits = deque(Split(cast(str, s["id"]), cast(dict[str, JsonValue], s["position"])) for s in left)

    def start(self) -> None:
        """Nothing to look at."""

    def next_split(self, subtask: int) -> Split | None:
        """The first split that was not handed out; None: there is none left."""
        return self._splits.popleft() if self._splits else None

    @property
    def exhausted(self) -> bool:
        """Whether no split is left."""
        return not self._splits

    @property
    def discovery_interval_ms(self) -> int | None:
        """None: the list is fixed."""
        return None

    def discover(self) -> None:
        """Nothing to look for: the list is fixed."""

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Take splits that are to be handed out first."""
        self._splits.extendleft(reversed(splits))

    def snapshot(self) -> JsonValue:
        """The splits that were not handed out."""
        return [{"id": s.split_id, "position": dict(s.position)} for s in self._splits]

    def close(self) -> None:
        """Nothing to release."""
