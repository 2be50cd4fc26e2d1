"""The contract of lookups: an outside table that answers, for key values, with its rows as they are now.

A lookup join (`FOR SYSTEM_TIME AS OF` a processing time) asks once a batch, for all keys of the batch together.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from flowrun.api.metrics import MetricGroup
from flowrun.core.arrays import Integers
from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.core.schema import Schema


@record
class LookupContext:
    """What a lookup knows of its subtask."""

    subtask: int
    parallelism: int
    clock: Clock
    metrics: MetricGroup


@record
class FoundRows:
    """What was found.

    Attributes:
        rows: columns of `LookupSource.schema`; immutable.
        probe: for each of them the position of the key that it was found for, ascending; a key may occur any number of times.
    """

    rows: pa.RecordBatch
    probe: Integers


class Lookup(Protocol):
    """The open table in one subtask; calls come from one thread at a time and may block on the outside system.

    With `lookup.async` a subtask has several, each of which is asked from a thread of its own; all are opened and closed by the
    subtask's thread.
    """

    def open(self) -> None:
        """Connect, or load what is kept in memory. Raises ConnectorError."""
        ...

    def find(self, keys: pa.RecordBatch) -> FoundRows:
        """The rows whose key columns equal each row of `keys`; a key with a NULL finds nothing.

        Args:
            keys: one column a key column, in the order and of the types of `LookupSource.keys`. The same key may occur twice, but
                callers that ask for each distinct key once are faster.

        Raises:
            ConnectorError: the outside system failed.
        """
        ...

    def close(self) -> None:
        """Release everything; idempotent."""
        ...


class LookupSource(Protocol):
    """A picklable description of a table that can be asked for rows by key."""

    @property
    def schema(self) -> Schema:
        """Columns of the rows that are found; key columns need not be among them."""
        ...

    @property
    def keys(self) -> Schema:
        """The columns that are asked by, in order, with the table's types."""
        ...

    def create_lookup(self, context: LookupContext) -> Lookup:
        """The lookup of one subtask."""
        ...
