"""The options of the connector `http`, and the record that the registry finds."""

from __future__ import annotations

from flowrun.api.connector import Connector
from flowrun.api.source import Delivery
from flowrun.connectors.formats.registry import RECORD_FORMATS
from flowrun.connectors.http.endpoint import CLIENT, ENDPOINT_OPTIONS
from flowrun.connectors.http.layout import SINK_OPTIONS
from flowrun.connectors.http.lookup import LOOKUP_OPTIONS, create_lookup
from flowrun.connectors.http.sink import create_sink
from flowrun.core.options import Option, OptionType

_SINK_IGNORED = Option(
    "ignored-response-codes",
    OptionType.STRING,
    "Status codes of answers that are taken for good though the server refuses.",
    default="",
)
_LOOKUP_IGNORED = Option(
    "ignored-response-codes",
    OptionType.STRING,
    "Status codes of answers that say that there is no row.",
    default="404,410",
)

CONNECTOR = Connector(
    name="http",
    summary="Requests to an HTTP server: rows are sent, one or many a request, and looked up by key.",
    sink_options=(*ENDPOINT_OPTIONS, _SINK_IGNORED, *SINK_OPTIONS),
    create_sink=create_sink,
    formats=RECORD_FORMATS,
    sink_delivery=Delivery.AT_LEAST_ONCE,
    lookup_options=(*ENDPOINT_OPTIONS, _LOOKUP_IGNORED, *LOOKUP_OPTIONS),
    create_lookup=create_lookup,
    client=CLIENT,
    notes="Exactly once as a sink with `sink.delivery-guarantee`, if the server takes each key once. See docs/connectors/http.md.",
)
