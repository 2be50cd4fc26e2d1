"""What the job graph that is kept in a checkpoint (as `flowrun explain --stage job --format json` prints it) says of the old pipeline.

Everything in it is a convenience: what is missing, as in a savepoint that another tool wrote, is simply not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowrun.api.accumulators import AccumulatorForm, form_of_document
from flowrun.api.source import JsonValue
from flowrun.core.record import record
from flowrun.operators.state_meanings import Meanings


@record
class RecordedExchange:
    """An exchange of the old pipeline: the operators that sent and received, and the kind of its partitioner, such as HASH."""

    producer: str
    consumer: str
    kind: str


def recorded_exchanges(graph: JsonValue) -> Mapping[str, RecordedExchange]:
    """Data set → its ends and kind."""
    vertices = list(_objects(graph, "vertices"))
    operators = {vertex.get("id"): list(_objects(vertex, "operators")) for vertex in vertices}
    exchanges = {}
    for vertex in vertices:
        for edge in _objects(vertex, "inputs"):
            senders, position = operators.get(edge.get("id"), []), edge.get("operator")
            receivers = operators.get(vertex.get("id"), [])
            if not isinstance(position, int) or position >= len(senders) or not receivers:
                continue
            kind = str(edge.get("ship_strategy", "")).partition("[")[0]
            exchange = RecordedExchange(str(senders[position].get("name")), str(receivers[0].get("name")), kind)
            exchanges[str(edge.get("data_set_id"))] = exchange
    return exchanges


def recorded_meanings(graph: JsonValue) -> Mapping[str, Meanings]:
    """Operator id → what the columns of its state tables hold."""
    return {
        str(operator.get("operator_id")): {
            str(table): {str(column): str(text) for column, text in columns.items()}
            for table, columns in state.items()
            if isinstance(columns, dict)
        }
        for vertex in _objects(graph, "vertices")
        for operator in _objects(vertex, "operators")
        if isinstance(state := operator.get("state"), dict)
    }


def recorded_accumulators(graph: JsonValue) -> Mapping[str, Mapping[str, AccumulatorForm]]:
    """Operator id → `table.column` → what the accumulators of a user's aggregate were."""
    return {
        str(operator.get("operator_id")): {
            f"{table}.{column}": form
            for table, columns in kept.items()
            if isinstance(columns, dict)
            for column, document in columns.items()
            if (form := form_of_document(document)) is not None
        }
        for vertex in _objects(graph, "vertices")
        for operator in _objects(vertex, "operators")
        if isinstance(kept := operator.get("accumulators"), dict)
    }


def _objects(holder: JsonValue, name: str) -> Iterator[dict[str, JsonValue]]:
    """The JSON objects of the list `name` in a JSON object; nothing if it is not like that."""
    items = holder.get(name) if isinstance(holder, dict) else None
    if isinstance(items, list):
        yield from (item for item in items if isinstance(item, dict))
