"""The source harness: one source operator with a coordinator played by the test, without threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowrun.api.operator import InputStatus, OperatorRecipe
from flowrun.api.source import Source, Split, SplitEnumerator
from flowrun.errors import FlowrunError
from flowrun.testing.harness import OperatorHarness


class SourceHarness(OperatorHarness):
    """Polls a source operator and answers its requests for splits from the source's own enumerator.

    Several subtasks share one enumerator: pass `enumerator` of the first harness to the others. The caller closes it.

    Attributes:
        enumerator: hands out the splits.
        available: whether the operator said that there is something again since the last poll.
    """

    def __init__(
        self,
        recipe: OperatorRecipe,
        source: Source,
        *,
        enumerator: SplitEnumerator | None = None,
        **options: Any,
    ) -> None:
        self.available = False
        self._open_requests = 0
        self._source = source
        self._given = enumerator
        self.enumerator: SplitEnumerator
        super().__init__(recipe, **options)

    def _connect(self) -> None:
        if self._given is None:
            self.enumerator = self._source.create_enumerator(self.context.parallelism, self.clock)
            self.enumerator.start()
        else:
            self.enumerator = self._given
        self.operator.connect(self._request)
        self.operator.set_availability_listener(self._on_available)

    def _request(self) -> None:
        self._open_requests += 1

    def _on_available(self) -> None:
        self.available = True

    def settle(self) -> None:
        """Answer requests for splits; run mails and due callbacks."""
        super().settle()
        while self._open_requests:
            split = self.enumerator.next_split(self.context.subtask)
            if split is None and not self.enumerator.exhausted:
                return
            self._open_requests -= 1
            if split is None:
                self.operator.notify_no_more_splits()
            else:
                self.operator.add_splits([split])

    def discover(self) -> None:
        """Let the enumerator look for new splits and serve waiting requests."""
        self.enumerator.discover()
        self.settle()

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Hand splits to the operator, past the enumerator."""
        self.operator.add_splits(splits)
        self.settle()

    def poll(self) -> InputStatus:
        """One `emit_next`."""
        self.available = False
        status: InputStatus = self.operator.emit_next()
        self.settle()
        return status

    def run(self, *, max_polls: int = 1_000_000) -> InputStatus:
        """Poll until the end of input, or until nothing is available and nothing was announced.

        Raises:
            FlowrunError: `max_polls` were not enough.
        """
        for _ in range(max_polls):
            status = self.poll()
            if status is InputStatus.END_OF_INPUT:
                return status
            if status is InputStatus.NOTHING_AVAILABLE and not self.available:
                return status
        raise FlowrunError(f"the source did not come to rest within {max_polls} polls")
