"""Hands out the splits of one source: the job's side of `SplitEnumerator`. Used by the job master's thread only."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Sequence

import orjson

from flowrun.api.source import JsonValue, LooksAgain, Source, Split, SplitEnumerator
from flowrun.core.clock import Clock
from flowrun.core.provided import provides
from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.runtime.messages import SplitRequest


@record
class SplitAnswer:
    """The answer to one split request; None: there will never be one again."""

    attempt_id: str
    split: Split | None


class SourceCoordinator:
    """One source vertex: its enumerator, and the readers that wait for a split in the order in which they asked.

    Everything raises what the enumerator raises.

    Args:
        unneeded_end_first: when a run begins, no split is handed out before the subtasks that will get none have ended: each of them holds
            event time back until then, and how long that takes would decide between which rows timers fire. All of its subtasks
            must be able to run at the same time.
    """

    def __init__(
        self, name: str, source: Source, parallelism: int, clock: Clock, *, unneeded_end_first: bool = False
    ) -> None:
        self.name = name
        self._source = source
        self._parallelism = parallelism
        self._clock = clock
        self._enumerator: SplitEnumerator | None = None
        self._waiting: deque[SplitRequest] = deque()
        self._unneeded_end_first = unneeded_end_first and parallelism > 1
        self.looks_ahead = False
        """Whether the first request is to find out who gets no split."""
        self._unneeded: set[int] = set()
        """Subtasks that get no split and have not ended."""
        self._began: bytes | None = (
            None  # JSON, compressed: of many files it is large, and it is kept for the whole run
        )
        self._left: JsonValue = None

    def start(self, restored: JsonValue = None) -> None:
        """Create and start an enumerator, afresh or from a snapshot; may block on I/O. One that was there before is closed."""
        self.close()
        self._waiting.clear()
        self._left = None
        self._unneeded = set()
        self.looks_ahead = self._unneeded_end_first and restored is None
        try:
            self._enumerator = self._source.create_enumerator(self._parallelism, self._clock, restored)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            if restored is None:
                raise
            raise StateError(
                f"source '{self.name}' cannot go on from what the checkpoint holds of its enumerator: {type(error).__name__}: {error}",
                hint="use another checkpoint, or give the source a new uid to start it anew",
            ) from error
        self._enumerator.start()

    def begin(self, restored: JsonValue = None, *, resumed: bool) -> None:
        """Start as a new run does, from the state of an older one (`resumed`) with what came since: what is found counts for the run."""
        self.start(restored)
        enumerator: object = self._enumerator
        if provides(enumerator, LooksAgain):
            if resumed:
                enumerator.look_again()
            self._began = zlib.compress(orjson.dumps(self.snapshot()), 1)

    def begin_again(self, restored: JsonValue = None) -> None:
        """Start where the run began: with what there was then, if the source may find other things now."""
        self.start(restored if self._began is None else orjson.loads(zlib.decompress(self._began)))
        self.looks_ahead = self._unneeded_end_first and restored is None

    def end(self, left: JsonValue) -> None:
        """The source has been read to its end; `left` is its enumerator's snapshot then, which stays as it is."""
        self.close()
        self._waiting.clear()
        self._left = left

    def not_read(self, left: JsonValue) -> Sequence[str]:
        """What came since a source was read to its end, and is not read therefore; may block on I/O."""
        if left is None:
            return ()
        enumerator = self._source.create_enumerator(self._parallelism, self._clock, left)
        looking: object = enumerator
        try:
            return looking.look_again() if provides(looking, LooksAgain) else ()
        finally:
            enumerator.close()

    @property
    def discovery_interval_ms(self) -> int | None:
        """How often `discover` is due; None: never."""
        return None if self._enumerator is None else self._enumerator.discovery_interval_ms

    def request(self, request: SplitRequest) -> list[SplitAnswer]:
        """A reader asks; it waits if there is nothing now but may be later."""
        self.look_ahead()
        self._waiting.append(request)
        return self._serve()

    def look_ahead(self) -> frozenset[int]:
        """If a run begins: the subtasks that will get no split. Until `ended` was called for each of them, nobody gets one."""
        if not self.looks_ahead:
            return frozenset()
        self.looks_ahead = False
        self._unneeded = self._without_split()
        return frozenset(self._unneeded)

    def ended(self, subtask: int) -> list[SplitAnswer]:
        """A reader has ended, and who reads from it alone; serve who waits for that."""
        if subtask not in self._unneeded:
            return []
        self._unneeded.remove(subtask)
        return self._serve()

    def _without_split(self) -> set[int]:
        """The subtasks for which there is no split, if each of the others takes one."""
        enumerator = self._enumerator
        if enumerator is None:
            return set()
        splits = [enumerator.next_split(subtask) for subtask in range(self._parallelism)]
        no_more = enumerator.exhausted
        enumerator.add_splits_back([split for split in splits if split is not None])
        return {subtask for subtask, split in enumerate(splits) if split is None} if no_more else set()

    def discover(self) -> list[SplitAnswer]:
        """Look for new splits, and serve who waits."""
        if self._enumerator is None:
            return []
        self._enumerator.discover()
        return self._serve()

    def snapshot(self) -> JsonValue:
        """What an enumerator needs to restore from here; of a source that has ended what it left."""
        return self._left if self._enumerator is None else self._enumerator.snapshot()

    def close(self) -> None:
        """Close the enumerator."""
        enumerator, self._enumerator = self._enumerator, None
        if enumerator is not None:
            enumerator.close()

    def _serve(self) -> list[SplitAnswer]:
        answers = self._serve_once()
        while (
            found := self._serve_once()
        ):  # that one reader has asked, or got an answer, may be what another one waits for
            answers += found
        return answers

    def _serve_once(self) -> list[SplitAnswer]:
        answers: list[SplitAnswer] = []
        enumerator = self._enumerator
        if enumerator is None:
            return answers
        # Every waiting reader is asked for: a split may be meant for one subtask only.
        for _ in range(len(self._waiting)):
            request = self._waiting.popleft()
            if self._unneeded:
                if request.vertex.subtask in self._unneeded:
                    answers.append(SplitAnswer(request.attempt_id, None))
                else:
                    self._waiting.append(request)
                continue
            split = enumerator.next_split(request.vertex.subtask)
            if split is not None:
                answers.append(SplitAnswer(request.attempt_id, split))
            elif enumerator.exhausted:
                answers.append(SplitAnswer(request.attempt_id, None))
            else:
                self._waiting.append(request)
        return answers
