"""The activity board: which operator each subtask is in, in memory that another process reads.

A call that holds the interpreter's lock, such as a backtracking `re.match`, lets no other thread of the process run: neither a signal
handler nor anything that could say what hangs. What subtasks have noted before it in shared memory can still be read from outside.

The board is an array of 64-bit integers: a header, then one slot a subtask, then the names of vertices and operators as JSON. Each word is
written by one thread. This module needs nothing but the standard library, so that the watchdog's process starts in 20 ms.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

WORD = 8
_HEADER_WORDS = 8
_SLOT_WORDS = 8
_ANSWERED, _SLOTS, _NAMES_BYTES = range(3)
_THREAD, _POSITION, _WAITING, _CALLS, _CANCELLED_NS = range(5)


@dataclass(frozen=True)
class SubtaskNames:
    """What messages call a subtask: `vertex` with its index, and the operators of its chain in their order."""

    vertex: str
    operators: tuple[str, ...]


@dataclass(frozen=True)
class SubtaskState:
    """One subtask as the board shows it.

    Attributes:
        index: of its slot.
        names: what it is called.
        thread: the system's number of its thread; 0: it does not run.
        operator: the operator that it is in; None: none.
        waiting: whether that waits for input or for room downstream.
        calls: how many calls of the chain there have been.
        cancelled_ns: when it was cancelled, `time.monotonic_ns`; 0: it was not.
    """

    index: int
    names: SubtaskNames
    thread: int
    operator: str | None
    waiting: bool
    calls: int
    cancelled_ns: int

    @property
    def is_busy(self) -> bool:
        """Whether it is in an operator that does not wait."""
        return self.thread != 0 and self.operator is not None and not self.waiting


class SubtaskActivity:
    """The slot of one subtask. Its thread writes all of it but the time of its cancellation."""

    __slots__ = ("_words",)

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def begin(self) -> None:
        """A thread starts to run the subtask."""
        words = self._words
        words[_POSITION] = words[_WAITING] = words[_CANCELLED_NS] = 0
        words[_THREAD] = threading.get_native_id()

    def end(self) -> None:
        """The subtask is over."""
        words = self._words
        words[_THREAD] = words[_POSITION] = words[_CANCELLED_NS] = 0

    def call(self, position: int = 0) -> None:
        """A new call begins, of the operator at a position of the chain."""
        words = self._words
        words[_CALLS] += 1
        words[_POSITION] = position + 1

    def rest(self) -> None:
        """The call has returned."""
        self._words[_POSITION] = 0

    def enter(self, position: int) -> None:
        """The operator at a position of the chain goes on."""
        self._words[_POSITION] = position + 1

    def wait(self, waiting: bool) -> None:
        """A wait begins, or is over."""
        self._words[_WAITING] = waiting

    def cancel(self) -> None:
        """It was asked to end. Any thread."""
        if not self._words[_CANCELLED_NS]:
            self._words[_CANCELLED_NS] = time.monotonic_ns()

    def give_up(self) -> None:
        """The job master has seen that it does not end. Any thread."""
        self._words[_CANCELLED_NS] = 0

    @property
    def position(self) -> int | None:
        """Which operator of the chain is at work; None: none."""
        position: int = self._words[_POSITION]
        return position - 1 if position else None


def private_activity() -> SubtaskActivity:
    """A slot that only this process sees."""
    return SubtaskActivity(memoryview(bytearray(_SLOT_WORDS * WORD)).cast("q"))


class ActivityBoard:
    """The board of one process.

    Args:
        subtasks: one slot each, in this order.

    `descriptor` is an open file that another process can map; it is inherited by none unless it is passed on.
    """

    def __init__(self, subtasks: Sequence[SubtaskNames]) -> None:
        names = json.dumps([[s.vertex, *s.operators] for s in subtasks]).encode()
        self._words_bytes = (_HEADER_WORDS + _SLOT_WORDS * len(subtasks)) * WORD
        self.descriptor = _shared_file(self._words_bytes + len(names))
        self._memory = mmap.mmap(self.descriptor, self._words_bytes + len(names))
        self._memory[self._words_bytes :] = names
        self._words = memoryview(self._memory)[: self._words_bytes].cast("q")
        self._words[_SLOTS] = len(subtasks)
        self._words[_NAMES_BYTES] = len(names)

    def slot(self, index: int) -> SubtaskActivity:
        """The slot of a subtask."""
        start = _HEADER_WORDS + index * _SLOT_WORDS
        return SubtaskActivity(self._words[start : start + _SLOT_WORDS])

    def answer(self) -> None:
        """A signal has been answered. The main thread only."""
        self._words[_ANSWERED] += 1

    def close(self) -> None:
        """Close the file; subtasks that still run may go on writing. Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class BoardReader:
    """Reads the board of another process.

    Args:
        descriptor: of the board's file.
    """

    def __init__(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        header = memoryview(memory)[: _HEADER_WORDS * WORD].cast("q")
        words = _HEADER_WORDS + header[_SLOTS] * _SLOT_WORDS
        self._words = memoryview(memory)[: words * WORD].cast("q")
        names = json.loads(memory[words * WORD : words * WORD + header[_NAMES_BYTES]])
        self._names = [SubtaskNames(vertex, tuple(operators)) for vertex, *operators in names]

    @property
    def answered(self) -> int:
        """How many signals have been answered."""
        answered: int = self._words[_ANSWERED]
        return answered

    def subtasks(self) -> list[SubtaskState]:
        """All subtasks as they are now."""
        return [self._subtask(index, names) for index, names in enumerate(self._names)]

    def _subtask(self, index: int, names: SubtaskNames) -> SubtaskState:
        start = _HEADER_WORDS + index * _SLOT_WORDS
        slot = self._words[start : start + _SLOT_WORDS].tolist()
        operator = names.operators[slot[_POSITION] - 1] if slot[_POSITION] else None
        return SubtaskState(
            index, names, slot[_THREAD], operator, bool(slot[_WAITING]), slot[_CALLS], slot[_CANCELLED_NS]
        )


def _shared_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("flowrun-activity")
    else:  # macOS
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor
