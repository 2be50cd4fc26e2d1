"""Operators with several inputs that say which one they read next.

An operator that has `next_selection` is asked before each batch or event of its task: only the selected inputs are read, the others wait.
So a join may read its build side to the end before it looks at the other one:

    class BuildFirst(AbstractOperator):
        inputs = 2
        built = False

        def next_selection(self):
            return InputSelection.ALL if self.built else InputSelection.FIRST

        def end_input(self, input_index=0):
            self.built = self.built or input_index == 0

An input of which everything was read counts no more. To select only such inputs while others go on is an error, as in Apache Flink: an
operator learns of the end by `end_input`, and selects another input then. How many rows a batch has is not said: an operator keeps
what comes too early.

A barrier of a checkpoint waits behind the rows of an input that is not selected, and the inputs that it has reached wait for it. So, as in
Flink, a job with such an operator takes no checkpoints; savepoints of it are declined. Two inputs that come from one operator can wait
for each other for ever: put something between them that keeps rows, or run the job in batch mode.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

from flowrun.core.record import record


@record
class InputSelection:
    """Some inputs of an operator.

    Attributes:
        inputs: their indexes, from 0; None: all.
    """

    inputs: frozenset[int] | None

    ALL: ClassVar[InputSelection]
    FIRST: ClassVar[InputSelection]
    SECOND: ClassVar[InputSelection]

    @classmethod
    def of(cls, *inputs: int) -> InputSelection:
        """The inputs with these indexes, from 0.

        Raises:
            ValueError: there are none, or one is negative.

        >>> InputSelection.of(0) == InputSelection.FIRST, InputSelection.of(0, 2).includes(1)
        (True, False)
        """
        if not inputs or min(inputs) < 0:
            raise ValueError(f"a selection names one input or more by their indexes, from 0, got {inputs}")
        return cls(frozenset(inputs))

    def includes(self, index: int) -> bool:
        """Whether an input is selected."""
        return self.inputs is None or index in self.inputs


InputSelection.ALL = InputSelection(None)
InputSelection.FIRST = InputSelection.of(0)
InputSelection.SECOND = InputSelection.of(1)


@runtime_checkable
class InputSelectable(Protocol):
    """An operator that selects its inputs; see the module."""

    def next_selection(self) -> InputSelection:
        """Which inputs to read now. Called often, from the subtask's own thread: quick, and without effect."""
        ...
