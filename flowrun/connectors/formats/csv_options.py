"""The parsed options of the CSV format as one record."""

from __future__ import annotations

import codecs

from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.errors import OptionError

OPTIONS = (
    Option(
        "field-delimiter", OptionType.STRING, "Character between fields; \\t and \\uXXXX are understood.", default=","
    ),
    Option(
        "quote-character",
        OptionType.STRING,
        "Character around fields that hold a delimiter, quote or line end.",
        default='"',
    ),
    Option(
        "disable-quote-character",
        OptionType.BOOLEAN,
        "Quotes mean nothing: every character stands for itself.",
        default=False,
    ),
    Option("escape-character", OptionType.STRING, "Character that makes the next one literal; none by default."),
    Option("allow-comments", OptionType.BOOLEAN, "Ignore lines that begin with #.", default=False),
    Option(
        "ignore-parse-errors",
        OptionType.BOOLEAN,
        "A field that cannot be read becomes NULL, a line that cannot be split is left out.",
        default=False,
    ),
    Option("array-element-delimiter", OptionType.STRING, "Text between the elements of an ARRAY or ROW.", default=";"),
    Option("null-literal", OptionType.STRING, "Text that stands for NULL; none by default."),
    Option(
        "write-bigdecimal-in-scientific-notation",
        OptionType.BOOLEAN,
        "Known to Flink; decimals are always written without exponent.",
    ),
    Option("header", OptionType.BOOLEAN, "The first line of each file names the columns, in any order.", default=False),
    Option(
        "multi-line",
        OptionType.BOOLEAN,
        "Quoted fields may hold line ends. Turn off to let several readers share a big file.",
        default=True,
    ),
)


@record
class CsvSettings:
    """Parsed CSV options; `quote` and `escape` are None when there is no such character."""

    delimiter: str
    quote: str | None
    escape: str | None
    comments: bool
    ignore_parse_errors: bool
    element_delimiter: str
    null_literal: str | None
    header: bool
    multi_line: bool


def csv_settings(options: Options) -> CsvSettings:
    """The settings of parsed options.

    Raises:
        OptionError: a delimiter, quote or escape is not one character.
    """
    quote = None if options.flag("csv.disable-quote-character") else _character(options, "csv.quote-character")
    delimiter = _character(options, "csv.field-delimiter")
    assert delimiter is not None
    if delimiter == quote:
        raise OptionError("csv.field-delimiter", f"csv: field delimiter and quote character are both '{delimiter}'")
    null_literal = options.get("csv.null-literal")
    return CsvSettings(
        delimiter=delimiter,
        quote=quote,
        escape=_character(options, "csv.escape-character"),
        comments=options.flag("csv.allow-comments"),
        ignore_parse_errors=options.flag("csv.ignore-parse-errors"),
        element_delimiter=_unescaped(options.text("csv.array-element-delimiter")),
        null_literal=None if null_literal is None else str(null_literal),
        header=options.flag("csv.header"),
        multi_line=options.flag("csv.multi-line") and quote is not None,
    )


def _character(options: Options, name: str) -> str | None:
    value = options.get(name)
    if value is None:
        return None
    text = _unescaped(str(value))
    if len(text) != 1 or not text.isascii() or text in "\r\n":
        raise OptionError(name, f"option '{name}' must be one ASCII character that is no line end, got '{value}'")
    return text


def _unescaped(text: str) -> str:
    return codecs.decode(text, "unicode_escape") if len(text) > 1 and text.startswith("\\") else text
