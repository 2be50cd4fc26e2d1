"""The options of `hybrid`: its own, and under the name of each source those of that source's connector and format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeGuard

from flowrun.api.connector import Connector
from flowrun.connectors.formats.registry import ERROR_OPTIONS, format_names
from flowrun.connectors.registry import connector_named, connector_names
from flowrun.connectors.table_options import VALUE_FORMAT, source_options
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.units import parse_duration_ms, parse_instant_ms
from flowrun.errors import OptionError

IDENTIFIERS = "source-identifiers"
SWITCH_TIME = "switch-time"
SWITCH_SLACK = "switch-slack"
_NAME = re.compile(r"[A-Za-z0-9_]+")
_DEFAULT_SLACK_MS = 300_000
_SHARED = frozenset(o.name for o in ERROR_OPTIONS)
"""Options that the table has for all of its sources."""

OWN_OPTIONS = (
    Option(
        IDENTIFIERS,
        OptionType.STRING,
        "Names of the sources in the order in which they are read, separated by commas: `history,live`. All but the last one must end.",
        required=True,
    ),
    Option(
        SWITCH_TIME,
        OptionType.STRING,
        "Event time, as `2024-03-01T10:00:00Z` or ms since 1970, from which on rows are those of the next source; those before it are of "
        "the one before. Of several switches each has its time, separated by commas.",
    ),
    Option(
        SWITCH_SLACK,
        OptionType.DURATION,
        "With `switch-time`: how much earlier a topic is read from, by the timestamps of its messages. Covers rows whose event time is "
        "later than that timestamp.",
        default=_DEFAULT_SLACK_MS,
        minimum=0,
    ),
    *ERROR_OPTIONS,
)
OF_ANY_TABLE = (
    *OWN_OPTIONS,
    Option("#.connector", OptionType.STRING, "The connector of a source, by the source's name: `history.connector`."),
    Option("#.format", OptionType.STRING, "The format of a source: `history.format`."),
    Option("#.#", OptionType.STRING, "Any option of a source's connector or format: `history.path`, `live.topic`."),
)
"""For lists; `options_for` knows those of a table."""


def options_for(given: Mapping[str, object]) -> tuple[Option, ...]:
    """All options that a table may be given, by what it is given. What is wrong with it is found later."""
    return (*OWN_OPTIONS, *_of_sources(given))


def _of_sources(given: Mapping[str, object]) -> Iterator[Option]:
    names = _split(str(given.get(IDENTIFIERS, "")))
    if _problem_of(names) is not None:
        yield Option("#.#", OptionType.STRING, "Any: what it means is not known.")
        return
    begins = _beginnings(given, len(names))
    for name, begin in zip(names, begins, strict=True):
        yield Option(f"{name}.connector", OptionType.STRING, f"The connector of source '{name}'.", required=True)
        yield Option(f"{name}.format", OptionType.STRING, f"The format of source '{name}'.")
        connector = str(given.get(f"{name}.connector"))
        format_name = given.get(f"{name}.format", given.get(f"{name}.{VALUE_FORMAT}"))
        found = connector_named(connector) if connector in connector_names() else None
        if not can_be_part(found) or (format_name is not None and format_name not in format_names()):
            yield Option(f"{name}.#", OptionType.STRING, "Any: what it means is not known.")
            continue
        preset = {} if begin is None or found.begins_at is None else found.begins_at(begin)
        for option in source_options(found, None if format_name is None else str(format_name)):
            if option.name not in _SHARED:
                default = preset.get(option.name, option.default)
                yield replace(option, name=f"{name}.{option.name}", default=default)


def parts_of(given: Mapping[str, object]) -> list[dict[str, object]]:
    """The options of each source, without its name."""
    names = _split(str(given[IDENTIFIERS]))
    return [{k.removeprefix(f"{n}."): v for k, v in given.items() if k.startswith(f"{n}.")} for n in names]


def can_be_part(connector: Connector | None) -> TypeGuard[Connector]:
    """Whether a connector is there, and has sources that can be among those of a hybrid one."""
    return connector is not None and connector.create_source is not None and connector.source_options_for is None


def _split(text: str) -> list[str]:
    return [n.strip() for n in text.split(",")]


def _beginnings(given: Mapping[str, object], count: int) -> list[int | None]:
    """Where the messages of each source begin, ms; None: nothing is said, or it cannot be understood."""
    try:
        times = [parse_instant_ms(t) for t in _split(str(given[SWITCH_TIME]))]
        slack = parse_duration_ms(str(given.get(SWITCH_SLACK, f"{_DEFAULT_SLACK_MS}ms")))
    except (KeyError, ValueError):
        return [None] * count
    begins = [None, *(max(t - slack, 0) for t in times)]
    return begins if len(begins) == count else [None] * count


def identifiers_of(options: Options) -> tuple[str, ...]:
    """The names of the sources.

    Raises:
        OptionError: there are fewer than two, one is given twice, or one is no name.
    """
    names = _split(options.text(IDENTIFIERS))
    problem = _problem_of(names)
    if problem is not None:
        raise OptionError(IDENTIFIERS, problem, hint="for example 'history,live'")
    return tuple(names)


def _problem_of(names: Sequence[str]) -> str | None:
    wrong = [n for n in names if not _NAME.fullmatch(n)]
    twice = [n for i, n in enumerate(names) if n in names[:i]]
    if wrong:
        return f"'{wrong[0]}' in '{IDENTIFIERS}' is no name: letters, digits and _ make one"
    if twice:
        return f"'{IDENTIFIERS}' names '{twice[0]}' twice"
    return f"'{IDENTIFIERS}' names one source only" if len(names) < 2 else None


def switch_times(options: Options, switches: int) -> tuple[int, ...]:
    """The event time of each switch, ms since the epoch; empty: none was given.

    Raises:
        OptionError: one is no time, there are more or fewer than switches, or they do not ascend.
    """
    given = options.get(SWITCH_TIME)
    if given is None:
        return ()
    times = []
    for text in _split(str(given)):
        try:
            times.append(parse_instant_ms(text))
        except ValueError as error:
            raise OptionError(
                SWITCH_TIME, f"option '{SWITCH_TIME}' expects a point in time, got '{text}'", hint=str(error)
            ) from None
    if len(times) != switches:
        raise OptionError(
            SWITCH_TIME,
            f"'{SWITCH_TIME}' has {len(times)} times, but there {'is one switch' if switches == 1 else f'are {switches} switches'} "
            "between the sources",
            hint="one time for each switch, separated by commas",
        )
    if any(a >= b for a, b in pairwise(times)):
        raise OptionError(SWITCH_TIME, f"the times of '{SWITCH_TIME}' must ascend, got '{given}'")
    return tuple(times)


def check_beginning(name: str, connector: Connector, options: Options, begin_ms: int) -> None:
    """Raise OptionError if the user lets a source begin elsewhere than `switch-time` says.

    Args:
        name: of the source.
        connector: its connector.
        options: those of the source, without its name.
        begin_ms: where it begins, by the time of its messages.
    """
    if connector.begins_at is None:
        return
    for key, value in connector.begins_at(begin_ms).items():
        if options.get(key) != value:
            raise OptionError(
                f"{name}.{key}",
                f"'{name}.{key}' and '{SWITCH_TIME}' exclude each other: the latter says where '{name}' begins",
                hint=f"leave one of them out; '{SWITCH_SLACK}' lets it begin earlier",
            )
