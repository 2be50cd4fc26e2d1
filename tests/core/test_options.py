"""Options: typed values, and every problem at once."""

import pytest

from flowrun.core.options import Option, OptionType, parse_options
from flowrun.core.units import parse_duration_ms, parse_memory_bytes
from flowrun.errors import OptionError

OPTIONS = (
    Option("path", OptionType.STRING, "Where to read.", required=True),
    Option("rows-per-second", OptionType.INT, "Pace.", default=10, minimum=1),
    Option("interval", OptionType.DURATION, "How often.", default=1000),
    Option("size", OptionType.MEMORY, "How large."),
    Option("mode", OptionType.ENUM, "How.", default="fast", choices=("fast", "slow")),
    Option("header", OptionType.BOOLEAN, "First line.", default=False),
    Option("fields.#.kind", OptionType.STRING, "Kind of one column."),
)


def test_text_and_yaml_scalars_become_typed_values_and_defaults_fill_in() -> None:
    options, errors = parse_options(
        OPTIONS,
        {"path": "/d", "interval": "2 min", "size": "1kb", "mode": "SLOW", "header": True, "fields.a.b.kind": "random"},
        "connector 'x'",
    )
    assert not errors
    assert options.text("path") == "/d"
    assert options.integer("rows-per-second") == 10
    assert options.integer("interval") == 120_000
    assert options.integer("size") == 1024
    assert options.text("mode") == "slow"
    assert options.flag("header") is True
    assert options.under("fields") == {"a.b.kind": "random"}


def test_all_problems_are_reported_at_once_with_the_nearest_names() -> None:
    _, errors = parse_options(
        OPTIONS,
        {"pth": "x", "rows-per-second": "0", "interval": "soon", "mode": "fsat", "header": "perhaps"},
        "connector 'x'",
    )
    found = {e.option: str(e) for e in errors}
    assert "did you mean 'path'?" in found["pth"]
    assert "at least 1" in found["rows-per-second"]
    assert "500ms" in found["interval"]
    assert "did you mean 'fast'?" in found["mode"]
    assert "expects a boolean, got 'perhaps'" in found["header"]
    assert "needs option 'path'" in found["path"]


@pytest.mark.parametrize("value", ["", "  "])
def test_what_is_needed_is_not_empty(value: str) -> None:
    known = (
        Option("path", OptionType.STRING, "Folder of the table.", required=True),
        Option("more", OptionType.STRING, "M."),
    )
    _, errors = parse_options(known, {"path": value, "more": value}, "connector 'x'")
    assert [(e.option, e.message, e.hint) for e in errors] == [
        ("path", "option 'path' is empty", "Folder of the table.")
    ]


def test_errors_of_a_pattern_option_name_the_key_as_given() -> None:
    pattern = (Option("fields.#.min", OptionType.INT, "Least."),)
    _, errors = parse_options(pattern, {"fields.a.min": "x"}, "connector 'datagen'")
    assert errors[0].option == "fields.a.min"
    assert "'fields.a.min'" in errors[0].message


@pytest.mark.parametrize(
    ("type", "said"), [(OptionType.INT, "expects an integer, got 'x'"), (OptionType.FLOAT, "expects a number, got 'x'")]
)
def test_what_an_option_expects_has_its_article(type: OptionType, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Option("n", type, "A number.").parse("x")


@pytest.mark.parametrize("text", ["", "10", "1 lightyear", "s", "1m,2s"])
def test_bad_durations_say_the_good_forms(text: str) -> None:
    with pytest.raises(ValueError, match="10s"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "ten mb", "1 tb", "-1kb"])
def test_bad_sizes_say_the_good_forms(text: str) -> None:
    with pytest.raises(ValueError, match="64mb"):
        parse_memory_bytes(text)
