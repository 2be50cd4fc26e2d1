"""Typed options: what connectors, formats and settings accept, and how given text becomes values.

An `Option` is declared once and serves validation, `flowrun connectors`, the JSON Schema and the reference page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import TypeVar, cast

from flowrun.core.record import record
from flowrun.core.units import flink_duration_ms, parse_memory_bytes
from flowrun.errors import OptionError, did_you_mean

OptionValue = str | int | float | bool | None
T = TypeVar("T")


class OptionType(Enum):
    """How the text of an option is read; `python` is the type of the value."""

    STRING = "string"
    INT = "integer"
    FLOAT = "number"  # int when written without a fraction
    BOOLEAN = "boolean"
    DURATION = "duration"  # int, ms
    MEMORY = "memory size"  # int, bytes
    ENUM = "enum"  # str, one of `choices`

    @property
    def with_article(self) -> str:
        """What a value is, in a sentence.

        >>> OptionType.INT.with_article, OptionType.FLOAT.with_article
        ('an integer', 'a number')
        """
        return f"{'an' if self.value[0] in 'aeiou' else 'a'} {self.value}"


@record
class Option:
    """One option.

    Attributes:
        name: full dotted key, e.g. `rows-per-second`. A part `#` stands for any one name: `fields.#.kind`.
        type: how its text is read.
        doc: one sentence for users.
        default: value when absent, in the value's own unit (ms, bytes); None means no default.
        required: absence is an error.
        choices: the allowed values of an ENUM.
        minimum: smallest number allowed, inclusive.
        secret: never printed.
    """

    name: str
    type: OptionType
    doc: str
    default: OptionValue = None
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    secret: bool = False

    def matches(self, key: str) -> bool:
        """Whether `key` is this option's name, `#` standing for one or more dotted parts."""
        if "#" not in self.name:
            return key == self.name
        pattern = "(.+)".join(re.escape(p) for p in self.name.split("#"))
        return re.fullmatch(pattern, key) is not None

    def parse(self, value: object) -> OptionValue:
        """The typed value of what a user wrote (YAML scalar or SQL string).

        Raises:
            OptionError: the text is no value of this option's type.
        """
        text = ("true" if value else "false") if isinstance(value, bool) else str(value)
        text = text.strip() or text  # a blank may be meant: a tab as delimiter
        try:
            parsed = self._parse_text(text)
        except ValueError as error:
            detail = f": {error}" if self.type in (OptionType.DURATION, OptionType.MEMORY) else ""
            raise OptionError(
                self.name, f"option '{self.name}' expects {self.type.with_article}, got '{text}'{detail}"
            ) from None
        if self.minimum is not None and isinstance(parsed, int | float) and parsed < self.minimum:
            raise OptionError(self.name, f"option '{self.name}' must be at least {self.minimum:g}, got {text}")
        return parsed

    def _parse_text(self, text: str) -> OptionValue:
        match self.type:
            case OptionType.INT:
                return int(text)
            case OptionType.FLOAT:
                return int(text) if text.lstrip("+-").isdigit() else float(text)  # big integers stay exact
            case OptionType.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise ValueError(text)
                return text.lower() == "true"
            case OptionType.DURATION:
                return flink_duration_ms(text)
            case OptionType.MEMORY:
                return parse_memory_bytes(text)
            case OptionType.ENUM:
                if text.lower() not in self.choices:
                    raise OptionError(
                        self.name,
                        f"option '{self.name}' must be one of {', '.join(self.choices)}, got '{text}'",
                        hint=did_you_mean(text, self.choices),
                    )
                return text.lower()
            case _:
                return text


@record(slots=False)
class Options:
    """Parsed options of one connector, format or settings block: every declared option has a value, if only its default."""

    values: Mapping[str, OptionValue] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A string or enum option that is set or has a default."""
        return cast(str, self._present(name))

    def integer(self, name: str) -> int:
        """An integer, duration (ms) or memory (bytes) option that is set or has a default."""
        return cast(int, self._present(name))

    def number(self, name: str) -> float:
        """A floating point option that is set or has a default."""
        return float(cast(float, self._present(name)))

    def flag(self, name: str) -> bool:
        """A boolean option that is set or has a default."""
        return cast(bool, self._present(name))

    def get(self, name: str) -> OptionValue:
        """The value, or None when it is absent and has no default."""
        return self.values.get(name)

    def under(self, prefix: str) -> dict[str, OptionValue]:
        """Options whose key starts with `prefix.`, keyed by the rest."""
        start = prefix + "."
        return {k.removeprefix(start): v for k, v in self.values.items() if k.startswith(start)}

    def _present(self, name: str) -> OptionValue:
        value = self.values.get(name)
        if value is None:
            raise OptionError(name, f"option '{name}' is needed here but not set")
        return value


def parse_options(
    declared: Iterable[Option], given: Mapping[str, object], owner: str
) -> tuple[Options, list[OptionError]]:
    """Values of all declared options, and every problem found (unknown, missing, malformed); never raises.

    Args:
        declared: what `owner` accepts.
        given: flat dotted keys as the user wrote them.
        owner: for messages, e.g. `connector 'datagen'`.
    """
    options = tuple(declared)
    errors: list[OptionError] = []
    values: dict[str, OptionValue] = {o.name: o.default for o in options if "#" not in o.name}
    for key, raw in given.items():
        option = next((o for o in options if o.matches(key)), None)
        if option is None:
            errors.append(
                OptionError(key, f"{owner} has no option '{key}'", hint=did_you_mean(key, [o.name for o in options]))
            )
            continue
        if option.required and isinstance(raw, str) and not raw.strip():
            errors.append(OptionError(key, f"option '{key}' is empty", hint=option.doc))
            continue
        try:
            values[key] = option.parse(raw)
        except OptionError as error:
            errors.append(OptionError(key, error.message.replace(option.name, key), hint=error.hint))
    errors.extend(
        OptionError(o.name, f"{owner} needs option '{o.name}'", hint=o.doc)
        for o in options
        if o.required and o.name not in given
    )
    return Options(values), errors
