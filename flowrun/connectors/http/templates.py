"""URLs and bodies with values of columns in them, quoted so that no value can be taken for anything else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.text_values import is_textual
from flowrun.connectors.formats.value_text import value_text
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.errors import DataError, OptionError, did_you_mean

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_UNQUOTED = "^[A-Za-z0-9_.~-]*$"


@record
class UrlTemplate:
    """A URL with placeholders.

    Attributes:
        texts: what stands around the placeholders: one more than columns.
        columns: names of the columns, in the order of the placeholders.
        in_path: how many of the placeholders are in the path; the others are in the query.
    """

    texts: tuple[str, ...]
    columns: tuple[str, ...]
    in_path: int

    @property
    def is_fixed(self) -> bool:
        """Whether all requests go to the same URL."""
        return not self.columns

    def urls(self, columns: Sequence[pa.Array], types: Sequence[DataType]) -> pa.Array:
        """The URL of each row, as strings.

        Args:
            columns: values for the placeholders, in their order.
            types: of the values.

        Raises:
            DataError: a value is NULL, or one in the path is empty, `.` or `..`: the URL would name something else.
        """
        pieces: list[pa.Array | str] = [self.texts[0]]
        for place, (name, column, kind, text) in enumerate(
            zip(self.columns, columns, types, self.texts[1:], strict=True)
        ):
            values = value_text(column, kind)
            self._check(name, values, in_path=place < self.in_path)
            pieces += [quoted(values), text]
        return pc.binary_join_element_wise(*pieces, "")

    def _check(self, name: str, values: pa.Array, *, in_path: bool) -> None:
        wrong = values.is_null()
        if in_path:
            odd = pa.array(["", ".", ".."], pa.string())
            wrong = pc.or_(wrong, pc.is_in(values, odd))
        row = pc.index(wrong, True).as_py()
        if row >= 0:
            value = values[row].as_py()
            raise DataError(
                f"column '{name}' is {'NULL' if value is None else repr(value)}, which cannot stand in the URL", row=row
            )


def quoted(values: pa.Array) -> pa.Array:
    """Texts as parts of a URL: all but letters, digits and `_.-~` is percent-encoded as UTF-8.

    >>> quoted(pa.array(["a-b", "x/y é"])).to_pylist()
    ['a-b', 'x%2Fy%20%C3%A9']
    """
    if pc.all(pc.match_substring_regex(values, _UNQUOTED)).as_py() is not False:
        return values
    encoded = values.dictionary_encode()
    texts = pa.array([quote(text, "") for text in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def url_template(url: str, schema: Schema, option: str = "url") -> UrlTemplate:
    """The template that a URL is.

    Args:
        url: with `{column}` in its path or query.
        schema: the columns that may be named.
        option: for messages.

    Raises:
        OptionError: a placeholder names no column, or one whose values are no text; a brace stands alone.

    >>> from flowrun.core.types import STRING
    >>> url_template("http://h/a/{id}?x=1", Schema.of(id=STRING)).texts
    ('http://h/a/', '?x=1')
    """
    parts = _PLACEHOLDER.split(url)
    texts, names = tuple(parts[0::2]), tuple(parts[1::2])
    if any("{" in text or "}" in text for text in texts):
        raise OptionError(
            option, f"option '{option}' has a brace that belongs to no placeholder", hint="write %7B or %7D"
        )
    _check_names(option, names, schema)
    before = len(_PLACEHOLDER.findall(url.partition("?")[0]))
    return UrlTemplate(texts, names, before)


def _check_names(option: str, names: Iterable[str], schema: Schema) -> None:
    for name in names:
        if name not in schema.names:
            raise OptionError(
                option,
                f"option '{option}' has '{{{name}}}', but there is no such column to take a value from",
                hint=did_you_mean(name, schema.names),
            )
        kind = schema.types[schema.index(name)]
        if not is_textual(kind):
            raise OptionError(option, f"option '{option}': column '{name}' is {kind}, which cannot stand in a URL")


@record
class BodyTemplate:
    """A JSON text with placeholders, of which each stands for a JSON value.

    Attributes:
        texts: what stands around the placeholders: one more than names.
        names: of the placeholders, in order.
    """

    texts: tuple[bytes, ...]
    names: tuple[str, ...]

    def filled(self, values: dict[str, bytes]) -> bytes:
        """The text with these JSON values.

        >>> BodyTemplate((b'{"of": ', b"}"), ("id",)).filled({"id": b"7"})
        b'{"of": 7}'
        """
        return b"".join([self.texts[0], *(values[n] + t for n, t in zip(self.names, self.texts[1:], strict=True))])


def body_template(text: str, names: Iterable[str]) -> BodyTemplate:
    """The template that a text is: only `{name}` of these names is a placeholder, as JSON has braces of its own.

    >>> body_template('{"a": {"b": {id}}}', ["id"]).texts
    (b'{"a": {"b": ', b'}}')
    """
    parts = re.split("|".join(r"\{(?:" + re.escape(n) + r")\}" for n in names), text)
    found = re.findall("|".join(r"\{" + re.escape(n) + r"\}" for n in names), text)
    return BodyTemplate(tuple(p.encode() for p in parts), tuple(f[1:-1] for f in found))
