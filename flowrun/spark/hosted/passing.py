"""An operator that only sends on what it gets: it stands where a source or a sink stood."""

from __future__ import annotations

from flowrun.api.operator import ChainingStrategy
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.base import AbstractOperator
from flowrun.operators.data_errors import NotNullCheck


@record
class PassFactory:
    """Makes operators that send on what they get; with a schema they check its NOT NULL columns, as the sink `place` would."""

    schema: Schema | None = None
    place: str = ""

    @property
    def chaining(self) -> ChainingStrategy:
        """Joins any chain."""
        return ChainingStrategy.ALWAYS

    def create(self) -> _PassOperator:
        """A new operator."""
        return _PassOperator(self)


class _PassOperator(AbstractOperator):
    def __init__(self, factory: PassFactory) -> None:
        self._check = None if factory.schema is None else NotNullCheck(factory.schema, factory.place)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Send on."""
        if self._check is not None:
            self._check.check(batch.columns)
        self.output.emit(batch)
