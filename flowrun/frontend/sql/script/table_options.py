"""The options of WITH (…): which the connector gets, which the engine itself reads, and where each stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from flowrun.core.record import record
from flowrun.core.row_errors import LetterLimit, OnError
from flowrun.core.semantics import WatermarkEmit
from flowrun.core.units import flink_duration_ms
from flowrun.errors import ExpressionError, OptionError
from flowrun.frontend.sql.script.statements import OptionSyntax
from flowrun.frontend.sql.script.text import ScriptText
from flowrun.frontend.sql.spans import Span, error_at
from flowrun.plan.tables import VALUE_FORMAT

CONNECTOR = "connector"
FORMAT = "format"
IDLE_TIMEOUT = "scan.watermark.idle-timeout"
EMIT_STRATEGY = "scan.watermark.emit.strategy"
SCAN_PARALLELISM = "scan.parallelism"
SINK_PARALLELISM = "sink.parallelism"
ON_ERROR = "on-error"
LETTERS_TO = "on-error.to"
MAX_LETTERS = "on-error.max-records"
MAX_PERCENT = "on-error.max-percent"
_ENGINE = (
    ON_ERROR,
    LETTERS_TO,
    MAX_LETTERS,
    MAX_PERCENT,
    IDLE_TIMEOUT,
    EMIT_STRATEGY,
    SCAN_PARALLELISM,
    SINK_PARALLELISM,
)
_WITHOUT_EFFECT = ("scan.watermark.alignment.", "scan.watermark.emit.on-event.gap")


@record
class TableOptions:
    """Options of a table as given.

    Attributes:
        values: what the connector and its format get.
        connector: None: not given.
        keys: where each key stands.
        places: where each value stands.
        secrets: keys whose values hold a secret.
        without_effect: keys of Flink's that are understood, but have no meaning here.
    """

    values: Mapping[str, str]
    connector: str | None
    format: str | None
    keys: Mapping[str, Span]
    places: Mapping[str, Span]
    secrets: frozenset[str] = frozenset()
    idle_timeout_ms: int | None = None
    emit: WatermarkEmit = WatermarkEmit.PERIODIC
    scan_parallelism: int | None = None
    sink_parallelism: int | None = None
    on_error: OnError | None = None
    letters_to: str | None = None
    letter_limit: LetterLimit | None = None
    without_effect: tuple[str, ...] = field(default=())

    def place_of(self, problem: OptionError, otherwise: Span) -> Span:
        """Where a problem stands: an unknown option at its key, a wrong one at its value, a missing one at `otherwise`."""
        unknown = " has no option " in problem.message
        return (self.keys if unknown else self.places).get(problem.option, otherwise)


def read_options(options: Iterable[OptionSyntax], script: ScriptText, problems: list[ExpressionError]) -> TableOptions:
    """The options of a table; what is wrong with those that the engine reads goes to `problems`."""
    given = list(options)
    texts = {o.key: o.value for o in given}
    places = {o.key: o.value_span for o in given}
    idle = _duration(texts, places, problems)
    return TableOptions(
        values={
            k: v
            for k, v in texts.items()
            if k not in (CONNECTOR, FORMAT, *_ENGINE) and not k.startswith(_WITHOUT_EFFECT)
        },
        connector=texts.get(CONNECTOR),
        format=texts.get(FORMAT, texts.get(VALUE_FORMAT)),
        keys={o.key: o.key_span for o in given},
        places=places,
        secrets=frozenset(o.key for o in given if any(p.secret for p in script.pieces_in(*o.value_span))),
        idle_timeout_ms=idle,
        emit=_emit(texts, places, problems),
        scan_parallelism=_parallelism(SCAN_PARALLELISM, texts, places, problems),
        sink_parallelism=_parallelism(SINK_PARALLELISM, texts, places, problems),
        on_error=_on_error(texts, places, problems),
        letters_to=texts.get(LETTERS_TO),
        letter_limit=_letter_limit(texts, places, problems),
        without_effect=tuple(k for k in texts if k.startswith(_WITHOUT_EFFECT)),
    )


def _duration(texts: Mapping[str, str], places: Mapping[str, Span], problems: list[ExpressionError]) -> int | None:
    if IDLE_TIMEOUT not in texts:
        return None
    try:
        return flink_duration_ms(texts[IDLE_TIMEOUT]) or None
    except ValueError as error:
        problems.append(
            error_at(
                f"'{IDLE_TIMEOUT}' expects a duration, got '{texts[IDLE_TIMEOUT]}'", places[IDLE_TIMEOUT], str(error)
            )
        )
        return None


def _emit(texts: Mapping[str, str], places: Mapping[str, Span], problems: list[ExpressionError]) -> WatermarkEmit:
    text = texts.get(EMIT_STRATEGY, WatermarkEmit.PERIODIC.value).strip().lower()
    try:
        return WatermarkEmit(text)
    except ValueError:
        known = " or ".join(f"'{e.value}'" for e in WatermarkEmit)
        problems.append(error_at(f"'{EMIT_STRATEGY}' expects {known}, got '{text}'", places[EMIT_STRATEGY], None))
        return WatermarkEmit.PERIODIC


def _on_error(texts: Mapping[str, str], places: Mapping[str, Span], problems: list[ExpressionError]) -> OnError | None:
    text = texts.get(ON_ERROR)
    if text is None:
        return OnError.DEAD_LETTER if LETTERS_TO in texts else None
    try:
        return OnError(text.lower())
    except ValueError:
        choices = ", ".join(mode.value for mode in OnError)
        problems.append(error_at(f"'{ON_ERROR}' is one of {choices}, got '{text}'", places[ON_ERROR], None))
        return None


def _letter_limit(
    texts: Mapping[str, str], places: Mapping[str, Span], problems: list[ExpressionError]
) -> LetterLimit | None:
    records, percent = texts.get(MAX_LETTERS), texts.get(MAX_PERCENT)
    if records is not None and not records.strip().isdecimal():
        problems.append(error_at(f"'{MAX_LETTERS}' expects a whole number, got '{records}'", places[MAX_LETTERS], None))
        return None
    share = None
    if percent is not None:
        try:
            share = float(percent.strip().removesuffix("%"))
        except ValueError:
            share = -1.0
        if not 0 < share <= 100:
            problems.append(
                error_at(
                    f"'{MAX_PERCENT}' expects a number above 0 and up to 100, got '{percent}'",
                    places[MAX_PERCENT],
                    None,
                )
            )
            return None
    return None if records is None and share is None else LetterLimit(None if records is None else int(records), share)


def _parallelism(
    key: str, texts: Mapping[str, str], places: Mapping[str, Span], problems: list[ExpressionError]
) -> int | None:
    text = texts.get(key, "").strip()
    if key not in texts:
        return None
    if not text.isdecimal() or int(text) < 1:
        problems.append(error_at(f"'{key}' expects a whole number of at least 1, got '{text}'", places[key], None))
        return None
    return int(text)
