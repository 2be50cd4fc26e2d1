"""An operator that only passes on what it gets; it takes the place of a source or a sink."""

from __future__ import annotations

from flowrun.api.operator import ChainingStrategy
from flowrun.core.constraints import SinkConstraints
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.base import AbstractOperator
from flowrun.operators.sink_constraints import ConstraintEnforcer


@record
class PassFactory:
    """Creates operators that pass on what they get; with a schema they enforce its constraints, as the sink `place` would."""

    schema: Schema | None = None
    place: str = ""
    constraints: SinkConstraints = SinkConstraints()

    chaining = ChainingStrategy.ALWAYS

    def create(self) -> _PassOperator:
        """A new operator."""
        return _PassOperator(self)


class _PassOperator(AbstractOperator):
    def __init__(self, factory: PassFactory) -> None:
        schema, constraints = factory.schema, factory.constraints
        self._enforcer = None if schema is None else ConstraintEnforcer(schema, constraints, factory.place)

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        """Pass the batch on."""
        if self._enforcer is not None:
            batch, _ = self._enforcer.enforced(batch)
        if batch.num_rows:
            self.output.emit(batch)
