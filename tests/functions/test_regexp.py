"""Regular expression functions and the translation of Java's syntax."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flowrun.core.types import STRING
from flowrun.errors import DataError, ExpressionError
from flowrun.functions.regex import timed as regex_timed
from flowrun.functions.regex.re2 import to_re2
from flowrun.functions.regex.syntax import RegexSyntaxError, compile_java, regex_problem, try_compile
from flowrun.functions.regex.timed import may_exceed_limit
from tests.examples import examples
from tests.functions.kernel_calls import Column, Constant, call, check, signature


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("REGEXP", ("foobar", "o+b"), True),
        ("REGEXP", ("foobar", "^b"), False),
        ("REGEXP", ("foobar", ""), False),
        ("REGEXP_EXTRACT", ("foothebar", "foo(.*?)(bar)", 2), "bar"),
        ("REGEXP_EXTRACT", ("foothebar", "foo(.*?)bar"), "foothebar"),
        ("REGEXP_EXTRACT", ("/home/7?ref=mail", "ref=([a-z]+)", 1), "mail"),
        ("REGEXP_EXTRACT", ("abc", "x(.)", 1), None),
        ("REGEXP_EXTRACT", ("ac", "a(b)?c", 1), None),
        ("REGEXP_EXTRACT", ("☂ü☂", "(ü)", 1), "ü"),
        ("REGEXP_EXTRACT_ALL", ("a1b22", "[a-z](\\d+)"), ["1", "22"]),
        ("REGEXP_EXTRACT_ALL", ("a1b22", "[a-z]\\d+", 0), ["a1", "b22"]),
        ("REGEXP_EXTRACT_ALL", ("abc", "(x)"), []),
        ("REGEXP_REPLACE", ("foobar", "oo|ar", ""), "fb"),
        ("REGEXP_REPLACE", ("/p/12?x=3", "[0-9]+", "#"), "/p/#?x=#"),
        ("REGEXP_REPLACE", ("a1", "(\\d)", "$1\\1"), "a$1\\1"),
        ("REGEXP_COUNT", ("banana", "an"), 2),
        ("REGEXP_INSTR", ("ü☂x", "x"), 3),
        ("REGEXP_INSTR", ("abc", "x"), 0),
        ("REGEXP_SUBSTR", ("abc123", "\\d+"), "123"),
        ("REGEXP_SUBSTR", ("abc", "\\d+"), None),
    ],
)
def test_values(name, arguments, expected):
    check(name, arguments, expected)


def test_null_gives_null():
    check("REGEXP_EXTRACT", (Constant(None, STRING), "a", 0), None)
    check("REGEXP_REPLACE", ("a", Constant(None, STRING), "b"), None)


def test_wrong_pattern_in_data_gives_null_as_in_flink():
    assert call("REGEXP_EXTRACT", Column(["ab", "ab"]), Column(["(", "b"]), 0) == [None, "b"]
    assert call("REGEXP", Column(["ab", "ab"]), Column(["(", "b"])) == [False, True]


WRONG = [
    "(a",
    "a)",
    "[a",
    "a\\",
    "*a",
    "a**",
    "a|+",
    "(*a)",
    "\\y",
    "\\x{110000}",
    "(?q)a",
    "{",
    'a{"b":1}',
    "a{,2}",
    "a\\E",
    "(?<a>b)(?<a>c)",
]
"""What Java 17 refuses."""


@pytest.mark.parametrize("pattern", WRONG)
@pytest.mark.parametrize("given", [Constant, lambda pattern, _: Column([pattern])], ids=["constant", "column"])
def test_a_wrong_pattern_gives_null_as_in_flink(pattern, given):
    regex = given(pattern, STRING)
    assert call("REGEXP", Column(["a"]), regex) == [False]
    for name, *more in (("EXTRACT", 0), ("EXTRACT_ALL", 0), ("REPLACE", "b"), ("COUNT",), ("INSTR",), ("SUBSTR",)):
        assert call(f"REGEXP_{name}", Column(["a"]), regex, *more) == [None], name


@pytest.mark.parametrize("pattern", ["\\p{Greek}", "(?<=a+)b", "(?U)a", "\\Ga", "^*a", "\\2"])
def test_a_pattern_that_only_java_takes_is_an_error(pattern):
    with pytest.raises(ExpressionError, match=r"argument 2 of REGEXP_EXTRACT.*supported"):
        signature("REGEXP_EXTRACT", "abc", pattern, 0)
    with pytest.raises(DataError, match=r"regular expression.*supported") as raised:
        call("REGEXP_EXTRACT", Column(["a", "a"]), Column(["a", pattern]), 0)
    assert raised.value.row == 1


@pytest.mark.parametrize("group", [2, -1])
def test_a_group_that_does_not_exist_is_null_as_in_flink(group):
    assert call("REGEXP_EXTRACT", Column(["ab"]), Constant("a(b)", STRING), group) == [None]
    assert call("REGEXP_EXTRACT_ALL", Column(["ab"]), Constant("a(b)", STRING), group) == [None]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"\Q.*\E+", "x.**", ".**"),
        (r"(?<d>\d)\k<d>", "1233", "33"),
        (r"[a-z&&[^aeiou]]+", "abcde", "bcd"),
        (r"[a-c[x-z]]+", "qbxy", "bxy"),
        (r"[^a[b]]+", "abcd", "cd"),
        (r"[^a-z&&[^x]]+", "ab1x", "1x"),
        (r"\p{Upper}\p{Alpha}+", "a Bcd", "Bcd"),
        (r"\p{L}+", "1ÜñЖ2", "ÜñЖ"),
        (r"\P{L}+", "ab12", "12"),
        (r"[\p{Digit}_]+", "ab1_2", "1_2"),
        (r"\w+", "üab", "ab"),
        (r"a.b", "a\rb a-b", "a-b"),
        (r"(?s)a.b", "a\nb", "a\nb"),
        (r"x(?i)abc|D", "xaBC", "xaBC"),
        (r"x(?i)abc|D", "d", "d"),
        (r"(?i:a)b", "Ab", "Ab"),
        (r"(a|b)++c", "abac", "abac"),
        (r"(?>a+)b", "aab", "aab"),
        (r"(?<=a)b(?!c)", "abc ab", "b"),
        (r"\x{1F600}", "a😀", "😀"),
        (r"\x41B", "AB", "AB"),
        (r"\0101", "A", "A"),
        (r"\h+", "a \t b", " \t "),
        (r"a\R", "a\r\n", "a\r\n"),
        (r"a\z", "ba", "a"),
        (r"[\[\]&]+", "a[&]", "[&]"),
        (r"(\d{2,})", "1 22", "22"),
    ],
)
def test_java_syntax(pattern, text, found):
    match = compile_java(pattern).search(text)
    assert match is not None
    assert match[0] == found


def test_message_of_a_wrong_pattern_names_it():
    with pytest.raises(RegexSyntaxError, match=r"'\[a' *: a class \[…\] is not closed"):
        compile_java("[a")


SIMPLE = st.recursive(
    st.sampled_from(["a", "b", "ab", "[ab]", "[^a]", ".", r"\d", "[0-9]", "ü", "-"]).flatmap(
        lambda atom: st.sampled_from(["", "+", "*", "?", "{1,2}", "+?", "*?"]).map(
            lambda times: atom + times if len(atom) == 1 or atom[0] in "[\\" else atom
        )
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}|{p[1]})"),
        inner.map(lambda p: f"({p})"),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["+", "*", "?", "{2}", "{0,2}", "+?"])).map(lambda p: f"({p[0]}){p[1]}"),
    ),
    max_leaves=6,
).flatmap(lambda pattern: st.sampled_from([pattern, pattern, f"{pattern}$", f"^{pattern}$"]))


@examples(200)
@given(SIMPLE, st.lists(st.text("ab1ü-\n", max_size=8), min_size=1, max_size=12))
def test_re2_gives_what_backtracking_gives(pattern, texts):
    compiled = compile_java(pattern)
    column = Column(texts)
    for group in range(compiled.groups + 1):
        expected = [(m[group] if (m := compiled.search(t)) else None) for t in texts]
        assert call("REGEXP_EXTRACT", column, Constant(pattern, STRING), group) == expected
    assert call("REGEXP", column, Constant(pattern, STRING)) == [compiled.search(t) is not None for t in texts]
    replaced = [compiled.sub(lambda _: "\\1$1", t) for t in texts]
    assert call("REGEXP_REPLACE", column, Constant(pattern, STRING), "\\1$1") == replaced


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("(&|^)channel_id=([^&]*)", True),
        ("ref=([a-z]+)", True),
        ("[0-9]+", True),
        (r"^(\d+)-(\w+)\.html", True),
        ("a(b)?", True),
        ("^(a+)+$", True),
        ("(a|b?c)*", True),
        ("a$", True),
        ("(a?)+", False),
        ("(a|b?)*", False),
        ("a|b$", False),
        ("a$b", False),
        (r"a\\$", False),
        (r"(a)\1", False),
        ("(?i)a", False),
        ("(?=a)", False),
        ("a++", False),
        (r"\bword", False),
        ("[a&&b]", False),
    ],
)
def test_which_patterns_re2_is_trusted_with(pattern, taken):
    assert (to_re2(pattern, compile_java(pattern)) is not None) == taken


CALLS = [
    ("REGEXP", (), False),
    ("REGEXP_EXTRACT", (0,), None),
    ("REGEXP_EXTRACT", (1,), None),
    ("REGEXP_EXTRACT_ALL", (1,), []),
    ("REGEXP_REPLACE", ("x",), "a" * 40 + "!"),
    ("REGEXP_COUNT", (), 0),
    ("REGEXP_INSTR", (), 0),
    ("REGEXP_SUBSTR", (), None),
]


@pytest.mark.parametrize(("name", "more", "expected"), CALLS)
@pytest.mark.parametrize("from_data", [False, True])
def test_a_pattern_with_exponentially_many_ways_to_fail_fails_at_once(name, more, expected, from_data):
    text, pattern = "a" * 40 + "!", "^(a+)+$"
    given = Column([pattern, pattern]) if from_data else Constant(pattern, STRING)
    started = time.process_time()
    assert call(name, Column([text, text]), given, *more) == [expected, expected]
    assert time.process_time() - started < 5, "backtracking takes hours"


@pytest.mark.parametrize("from_data", [False, True])
def test_so_do_delimiters_of_maps(from_data):
    text, pattern = "a" * 40 + "!", "^(a+)+$"
    given = Column([pattern, pattern]) if from_data else Constant(pattern, STRING)
    started = time.process_time()
    assert call("STR_TO_MAP", Column([text, text]), given, given) == [[(text, None)]] * 2
    assert time.process_time() - started < 5, "backtracking takes hours"


def test_groups_that_may_take_no_part_are_not_read_from_re2():
    pattern = to_re2("(a)|(b(c|d))", compile_java("(a)|(b(c|d))"))
    assert pattern is not None
    assert not pattern.always
    pattern = to_re2("(x|(y))z(w)", compile_java("(x|(y))z(w)"))
    assert pattern is not None
    assert pattern.always == {1, 3}


EXPONENTIAL = "(?=x*)^(a|aa)+$"
"""RE2 knows no look-ahead, so that this is left to backtracking."""


@pytest.mark.parametrize("name", ["REGEXP", "REGEXP_EXTRACT_ALL", "REGEXP_REPLACE", "REGEXP_COUNT", "STR_TO_MAP"])
@pytest.mark.parametrize("from_data", [False, True])
def test_a_search_that_takes_too_long_is_an_error_of_its_row(name, from_data, monkeypatch):
    monkeypatch.setattr(regex_timed, "LIMIT_S", 0.2)
    text = "a" * 60 + "!"
    given = Column([EXPONENTIAL]) if from_data else Constant(EXPONENTIAL, STRING)
    more = ("x",) if name == "REGEXP_REPLACE" else ()
    with pytest.raises(
        DataError,
        match=r"the regular expression '\(\?=x\*\)\^\(a\|aa\)\+\$' takes more than 0 s on a text of 61 characters, 'aaa",
    ):
        call(name, Column([text]), given, *more)


def test_a_text_that_took_too_long_is_not_searched_again(monkeypatch):
    monkeypatch.setattr(regex_timed, "LIMIT_S", 0.5)
    pattern, text = "(?=y*)^(a|aa)+$", "a" * 60 + "!"
    started = time.process_time()
    for _ in range(20):
        with pytest.raises(DataError, match="takes more than"):
            call("REGEXP", Column([text]), Constant(pattern, STRING))
    assert time.process_time() - started < 5


def test_what_may_take_too_long_may_fail():
    def fails(pattern):
        return may_exceed_limit(pattern, compile_java(pattern))

    assert fails(EXPONENTIAL)
    assert fails("^(a+)+$")
    assert not fails(r"(\w+)@(\w+)")
    assert not fails(r"(?i)a+")


PIECES = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        ".",
        "[ab]",
        "[^a]",
        r"\w",
        r"\b",
        "^",
        "$",
        "(a)",
        "(?:b)",
        "(a|b)",
        "(a|ab)",
        "(?=a)",
        "(?!b)",
        "(?<=a)",
        "(?>a+)",
        r"\1",
        "(?i)A",
        "é",
    ]
)
QUANTIFIERS = st.sampled_from(["", "", "", "*", "+", "?", "*?", "+?", "??", "{1,2}", "{2}", "*+", "++"])


@examples(400)
@given(st.lists(st.tuples(PIECES, QUANTIFIERS), min_size=1, max_size=5), st.text("abA é\n", max_size=12))
def test_timed_patterns_match_as_others_do(parts, text):
    pattern = "".join(piece + quantifier for piece, quantifier in parts)
    assume(not regex_problem(pattern))
    compiled = try_compile(pattern)
    assume(compiled is not None)
    assume(regex_timed.re_matches_well(pattern))
    try:
        timed = regex_timed.TimedPattern(pattern, compiled)
    except ValueError:
        return  # then it is not used
    expected = [(m.span(), m.groups()) for m in compiled.finditer(text)]
    assert [(m.span(), m.groups()) for m in timed.finditer(text)] == expected
    assert timed.sub(lambda _: "<>", text) == compiled.sub(lambda _: "<>", text)
    first = timed.search(text)
    assert (None if first is None else first.span()) == (expected[0][0] if expected else None)
