"""The `nexmark` connector: persons, auctions and bids of the published benchmark, vectorised.

Options and columns are those of the Flink connector at github nexmark/nexmark; the distributions (proportions, hot ratios, id
leads, prices, auction lengths) follow its generator. Extensions, so that a run can be repeated: `seed`, `base-time` and
`out-of-order.group-size`.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from flowrun.api.connector import Connector, TableDefinition
from flowrun.api.source import Delivery
from flowrun.connectors.formats.arrow_fit import fit_column
from flowrun.connectors.generated import GeneratedSource, RowGenerator
from flowrun.connectors.nexmark_events import AUCTION, BID, PERSON, EventConfig, NexmarkEvents
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import INT, DataType, TypeRoot
from flowrun.errors import OptionError

SCHEMA = Schema.from_pairs([("event_type", INT), ("person", PERSON), ("auction", AUCTION), ("bid", BID)])

OPTIONS = (
    Option("first-event.rate", OptionType.INT, "Events a second of event time.", default=10_000, minimum=1),
    Option(
        "next-event.rate",
        OptionType.INT,
        "Kept for compatibility: must equal `first-event.rate`, as the rate is constant.",
        default=10_000,
    ),
    Option(
        "rate.shape",
        OptionType.ENUM,
        "Kept for compatibility: the rate is constant.",
        default="square",
        choices=("square", "sine"),
    ),
    Option("rate.period", OptionType.DURATION, "Kept for compatibility.", default=600_000),
    Option(
        "rate.limited", OptionType.BOOLEAN, "Emit at the event-time rate instead of as fast as possible.", default=False
    ),
    Option("max-emit-speed", OptionType.BOOLEAN, "Emit as fast as possible unless `rate.limited`.", default=True),
    Option("events.num", OptionType.INT, "Events in all; 0: without end.", default=0, minimum=0),
    Option("stop-at", OptionType.INT, "End after this many events; negative: never.", default=-1),
    Option("keep-alive", OptionType.BOOLEAN, "Stay open without rows after the last event.", default=False),
    Option("person.proportion", OptionType.INT, "Persons in each group of events.", default=1, minimum=0),
    Option("auction.proportion", OptionType.INT, "Auctions in each group of events.", default=3, minimum=0),
    Option("bid.proportion", OptionType.INT, "Bids in each group of events.", default=46, minimum=0),
    Option("person.avg-size", OptionType.MEMORY, "Average size of a person.", default=200),
    Option("auction.avg-size", OptionType.MEMORY, "Average size of an auction.", default=500),
    Option("bid.avg-size", OptionType.MEMORY, "Average size of a bid.", default=100),
    Option(
        "bid.hot-ratio.auctions", OptionType.INT, "1 − 1/n of the bids are for a hot auction.", default=2, minimum=1
    ),
    Option("bid.hot-ratio.bidders", OptionType.INT, "1 − 1/n of the bids are by a hot bidder.", default=4, minimum=1),
    Option(
        "auction.hot-ratio.sellers",
        OptionType.INT,
        "1 − 1/n of the auctions are by a hot seller.",
        default=4,
        minimum=1,
    ),
    Option("seed", OptionType.INT, "The same seed gives the same events.", default=1),
    Option(
        "base-time",
        OptionType.STRING,
        "Event time of the first event, UTC; `now` for the job's start.",
        default="2015-07-15 00:00:00",
    ),
    Option(
        "out-of-order.group-size",
        OptionType.INT,
        "Events are out of order within groups of this size.",
        default=1,
        minimum=1,
    ),
)


@record
class _Events:
    schema: Schema
    config: EventConfig

    def create(self, origin_ms: int) -> RowGenerator:
        return _EventMaker(self, origin_ms)


class _EventMaker:
    def __init__(self, recipe: _Events, origin_ms: int) -> None:
        self._schema = recipe.schema
        self._fits = [fit_column(SCHEMA.field(f.name).type.arrow, f.type) for f in recipe.schema]
        self._events = NexmarkEvents(recipe.config, origin_ms)

    def rows(self, start: int, count: int) -> pa.RecordBatch:
        """Events `start` … `start + count − 1`; only the columns asked for are computed."""
        block = self._events.block(start, count)
        columns = [block.column(n) for n in self._schema.names]
        fitted = [c if fit is None else fit(c) for c, fit in zip(columns, self._fits, strict=True)]
        return pa.RecordBatch.from_arrays(fitted, schema=self._schema.arrow)

    def watermark(self, row: int) -> int:
        """1 ms before the earliest event time that may come from `row` on."""
        return self._events.earliest_ms(row) - 1


def _create_source(table: TableDefinition) -> GeneratedSource:
    for field in (*(table.declared or ()), *table.schema):
        if field.name not in SCHEMA or not _is_part_of(field.type, SCHEMA.field(field.name).type):
            expected = f"{SCHEMA.field(field.name).type}" if field.name in SCHEMA else "no such column"
            raise OptionError(
                "schema",
                f"nexmark: column '{field}' of '{table.name}' does not fit the generator: expected {expected}",
                hint="leave the schema out, or declare "
                + ", ".join(f.name for f in SCHEMA)
                + " with the published types",
            )
    options = table.options
    if options.text("rate.shape") != "square":
        raise OptionError("rate.shape", "nexmark: only the square rate shape with one constant rate is generated")
    if options.integer("next-event.rate") != options.integer("first-event.rate"):
        raise OptionError(
            "next-event.rate", "nexmark: next-event.rate must equal first-event.rate: the rate is constant"
        )
    limits = [n for n in (options.integer("events.num"), options.integer("stop-at")) if n > 0]
    if options.flag("keep-alive") and limits:
        raise OptionError(
            "keep-alive", "nexmark: keep-alive cannot hold a source open that ends by events.num or stop-at"
        )
    rate = options.integer("first-event.rate") if options.flag("rate.limited") else None
    if not options.flag("max-emit-speed"):
        rate = options.integer("first-event.rate")
    events = _Events(table.schema, _config(options))
    return GeneratedSource(events, min(limits) if limits else None, rate, table.source_watermarks)


def _is_part_of(asked: DataType, made: DataType) -> bool:
    """Whether a type is the generated one, or a ROW of some of its fields."""
    if asked.root is not TypeRoot.ROW or made.root is not TypeRoot.ROW:
        return asked == made
    return all(made.field(n) == t for n, t in zip(asked.names, asked.children, strict=True))


def _config(options: Options) -> EventConfig:
    proportions = tuple(options.integer(f"{kind}.proportion") for kind in ("person", "auction", "bid"))
    if proportions[0] < 1 or proportions[1] < 1:
        raise OptionError("person.proportion", "nexmark: person.proportion and auction.proportion must be at least 1")
    return EventConfig(
        seed=options.integer("seed"),
        rate=options.integer("first-event.rate"),
        base_time_ms=_base_time_ms(options.text("base-time")),
        proportions=(proportions[0], proportions[1], proportions[2]),
        average_sizes=(
            options.integer("person.avg-size"),
            options.integer("auction.avg-size"),
            options.integer("bid.avg-size"),
        ),
        hot_auctions=options.integer("bid.hot-ratio.auctions"),
        hot_bidders=options.integer("bid.hot-ratio.bidders"),
        hot_sellers=options.integer("auction.hot-ratio.sellers"),
        disorder=options.integer("out-of-order.group-size"),
    )


def _base_time_ms(text: str) -> int | None:
    if text.lower() == "now":
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError("base-time", f"nexmark: base-time expects a timestamp or 'now', got '{text}'") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


CONNECTOR = Connector(
    name="nexmark",
    summary="Persons, auctions and bids of the Nexmark benchmark, seedable.",
    source_options=OPTIONS,
    create_source=_create_source,
    source_delivery=Delivery.EXACTLY_ONCE,
    source_watermarks=True,
    default_schema=SCHEMA,
    reads_fields=True,
    notes="Columns: event_type (0 person, 1 auction, 2 bid), and the nested rows person, auction and bid, NULL but for the event's own.",
)
