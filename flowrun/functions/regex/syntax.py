r"""Java regular expressions as Python ones: the translation, and where the two still differ.

Flink's regular expressions are Java's (`java.util.regex.Pattern`). Python's `re` has the same backtracking semantics, look-around,
possessive quantifiers and atomic groups, so a pattern only needs its spelling changed:

* `\d \w \s \b` and case-insensitivity are ASCII; `.` leaves out all of Java's line terminators;
* `(?<name>…)`, `\k<name>`, `\Q…\E`, `\h \H \v \V \R \e \z \Z`, `\x{1F600}`, `\0101`, `\cA`, flags in mid-pattern;
* `\p{Alpha}` … `\p{ASCII}`, `\p{L}`, `\p{N}` and their long names, `\P{…}`;
* class union `[a-c[x-z]]` and intersection `[a-z&&[^aeiou]]`.

Refused with a message: look-behind of variable width, other Unicode properties, `\G \X \N{…}`, flags `d`, `u` and `U`, repeated
anchors, references to groups that are not there. `$` outside multi-line mode stands before a final `\n` only (Java: before any final
line terminator).
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import lru_cache

from flowrun.core.record import record

_LINE_TERMINATORS = r"\n\r\x85\u2028\u2029"
_HORIZONTAL = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_VERTICAL = r"\n\x0b\f\r\x85\u2028\u2029"
_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": r"\x00-\x7f", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": " -~", "Blank": r" \t", "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F", "Space": r" \t\n\x0b\f\r",
}  # fmt: skip
_LETTER_NAMES = {"L", "IsL", "IsAlphabetic", "IsLetter", "javaLetter", "general_category=L"}
_NUMBER_NAMES = {"Nd", "IsNd", "IsDigit", "javaDigit"}
_SETS = {"h": _HORIZONTAL, "v": _VERTICAL}
_FLAGS = frozenset("imsx")
_JAVA_FLAGS = frozenset("dimsuxU")
_COUNTED = re.compile(r"\{\d+(?:,\d*)?\}")
_WRONG_IN_JAVA_TOO = re.compile(
    r"missing \)|unbalanced parenthesis|unterminated|bad character|min repeat|redefinition|unknown group name|unknown extension"
    r"|bad escape|incomplete escape|missing group name|unexpected end of pattern"
)
_NOTHING_TO_REPEAT = re.compile(r"(?:nothing|multiple) (?:to )?repeat")
_BEGINS = re.compile(r"(?:^|(?<!\\)[(|*+?}]|\((?:\?<?[:=!>]))\Z")
"""Behind what a `*`, `+` or `?` of Java has nothing to repeat."""


class RegexSyntaxError(ValueError):
    """The pattern is not a Java regular expression."""


class UnsupportedRegexError(ValueError):
    """The pattern uses a part of Java's language that is not supported, or one of which that is not certain."""


@lru_cache(maxsize=1024)
def compile_java(pattern: str) -> re.Pattern[str]:
    r"""A compiled Python pattern that matches as the Java pattern does. Cached; thread-safe.

    Raises:
        RegexSyntaxError: with what is wrong and where.
        UnsupportedRegexError: Java may take it.

    >>> compile_java(r"(?<year>\d{4})-\Q.\E").search("in 2024-.").group("year")
    '2024'
    >>> compile_java(r"[a-z&&[^aeiou]]+").findall("flowrun")
    ['fl', 'wr', 'n']
    """
    translated = _Translator(pattern).translate()
    try:
        return re.compile(translated, re.ASCII)
    except re.error as error:
        if _is_wrong_in_java(error, translated):
            raise RegexSyntaxError(f"'{pattern}' is not a regular expression: {error}") from error
        raise UnsupportedRegexError(f"'{pattern}' is not supported: {error}") from error
    except (OverflowError, RecursionError) as error:
        raise UnsupportedRegexError(f"'{pattern}' is not supported: {error}") from error


def _is_wrong_in_java(error: re.error, translated: str) -> bool:
    """Whether Java refuses, too, what Python refused."""
    if _NOTHING_TO_REPEAT.match(error.msg) and error.pos is not None:
        return translated[error.pos] in "*+?" and _BEGINS.search(translated[: error.pos]) is not None
    return _WRONG_IN_JAVA_TOO.search(error.msg) is not None


def regex_problem(pattern: object) -> str | None:
    r"""What is not supported of a constant pattern, or None; the check of regular expression parameters. A wrong one is no problem.

    >>> regex_problem("a+"), regex_problem("(a"), regex_problem(r"\Ga")
    (None, None, "'\\Ga': \\G is not supported")
    """
    try:
        try_compile(str(pattern))
    except UnsupportedRegexError as error:
        return str(error)
    return None


def try_compile(pattern: str) -> re.Pattern[str] | None:
    """The compiled pattern, or None if it is not one, for which Flink's functions give NULL.

    Raises:
        UnsupportedRegexError: Java may take it.
    """
    try:
        return compile_java(pattern)
    except RegexSyntaxError:
        return None


@record(frozen=False)
class _Group:
    """An open group while translating: the flag groups opened inside it, to be closed with it, and its dot-matches-all flag."""

    dot_all: bool
    flags: list[str] = field(default_factory=list)


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._out: list[str] = []
        self._groups = [_Group(dot_all=False)]

    def translate(self) -> str:
        while self._at < len(self._text):
            self._step()
        self._out.append(")" * len(self._groups[-1].flags))
        return "".join(self._out)

    def _step(self) -> None:
        character = self._text[self._at]
        match character:
            case "\\":
                self._out.append(self._escape(in_class=False))
            case "[":
                self._at += 1
                self._out.append(self._class())
            case "(":
                self._open()
            case ")":
                group = self._groups.pop() if len(self._groups) > 1 else self._groups[0]
                self._out.append(")" * len(group.flags) + ")")
                group.flags.clear()
                self._at += 1
            case "|":
                flags = self._groups[-1].flags
                self._out.append(")" * len(flags) + "|" + "".join(flags))
                self._at += 1
            case ".":
                self._out.append(r"[\s\S]" if self._groups[-1].dot_all else f"[^{_LINE_TERMINATORS}]")
                self._at += 1
            case "{":
                self._counted()
            case _:
                self._out.append(character)
                self._at += 1

    def _counted(self) -> None:
        match = _COUNTED.match(self._text, self._at)
        if match is None:
            raise RegexSyntaxError(
                f"'{self._text}': {{ stands for no number of repetitions; write \\\\{{ for the character"
            )
        self._out.append(match[0])
        self._at = match.end()

    def _open(self) -> None:
        rest = self._text[self._at :]
        dot_all = self._groups[-1].dot_all
        if rest.startswith("(?<") and rest[3:4] not in ("=", "!"):
            self._out.append("(?P<")
            self._at += 3
        elif match := re.match(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])", rest):
            on, off, end = match[1], match[2] or "", match[3]
            unknown = (set(on) | set(off)) - _FLAGS
            if unknown:
                failure = UnsupportedRegexError if unknown <= _JAVA_FLAGS else RegexSyntaxError
                raise failure(f"'{self._text}': flag {', '.join(sorted(unknown))} is not supported; use i, m, s or x")
            dot_all = ("s" in on or dot_all) and "s" not in off
            opened = self._flag_group(on, off)
            self._out.append(opened)
            self._at += match.end()
            if end == ")":  # the flags hold up to the end of the enclosing group
                self._groups[-1].flags.append(opened)
                self._groups[-1].dot_all = dot_all
                return
        else:
            self._out.append("(")
            self._at += 1
            if rest.startswith("(?"):
                prefix = re.match(r"\(\?(<?[=!]|>)?", rest)
                assert prefix is not None
                self._out.append(prefix[0][1:])
                self._at += len(prefix[0]) - 1
        self._groups.append(_Group(dot_all))

    @staticmethod
    def _flag_group(on: str, off: str) -> str:
        # `s` is translated away with the dots; Python wants at least one flag after a minus
        kept_on, kept_off = on.replace("s", ""), off.replace("s", "")
        return f"(?{kept_on}{'-' + kept_off if kept_off else ''}:"

    def _escape(self, *, in_class: bool) -> str:
        start = self._at
        self._at += 2
        code = self._text[start + 1 : start + 2]
        if code == "":
            raise RegexSyntaxError(f"'{self._text}' ends in a single backslash")
        match code:
            case "Q":
                end = self._text.find("\\E", self._at)
                quoted = self._text[self._at : end] if end >= 0 else self._text[self._at :]
                self._at = end + 2 if end >= 0 else len(self._text)
                return re.escape(quoted)
            case "E":
                raise RegexSyntaxError(f"'{self._text}': \\E has no \\Q before it")
            case "p" | "P":
                return self._property(negated=code == "P", in_class=in_class)
            case "h" | "v":
                return _SETS[code] if in_class else f"[{_SETS[code]}]"
            case "H" | "V":
                return self._outside(f"[^{_SETS[code.lower()]}]", in_class)
            case "R":
                return self._outside(rf"(?:\r\n|[{_VERTICAL}])", in_class)
            case "e":
                return r"\x1b"
            case "z":
                return r"\Z"
            case "Z":
                return rf"(?=(?:\r\n|[{_LINE_TERMINATORS}])?\Z)"
            case "k":
                return self._back_reference()
            case "x" | "0" | "c":
                return self._code_point(code)
            case "G" | "X" | "N":
                raise UnsupportedRegexError(f"'{self._text}': \\{code} is not supported")
            case _ if code.isalpha() and code not in "tnrfadDsSwWbBAu":
                raise RegexSyntaxError(f"'{self._text}': \\{code} is not an escape of Java regular expressions")
            case _:
                return self._text[start : self._at] if code.isalnum() else re.escape(code)

    def _outside(self, translated: str, in_class: bool) -> str:
        if in_class:
            raise UnsupportedRegexError(
                f"'{self._text}': {self._text[self._at - 2 : self._at]} inside […] is not supported"
            )
        return translated

    def _back_reference(self) -> str:
        match = re.compile(r"<(\w+)>").match(self._text, self._at)
        if match is None:
            raise RegexSyntaxError(f"'{self._text}': \\k needs a group name in <>")
        self._at = match.end()
        return f"(?P={match[1]})"

    def _code_point(self, code: str) -> str:
        forms = {"x": r"\{([0-9a-fA-F]+)\}|([0-9a-fA-F]{2})", "0": "([0-3][0-7]{2}|[0-7]{1,2})", "c": "(.)"}
        match = re.compile(forms[code]).match(self._text, self._at)
        if match is None:
            raise RegexSyntaxError(f"'{self._text}': digits are missing after \\{code}")
        self._at = match.end()
        digits = next(g for g in match.groups() if g is not None)
        if code == "c":
            return re.escape(chr(ord(digits) ^ 64))
        value = int(digits, 16 if code == "x" else 8)
        if value > 0x10FFFF:
            raise RegexSyntaxError(f"'{self._text}': there is no character U+{value:X}")
        return re.escape(chr(value))

    def _property(self, *, negated: bool, in_class: bool) -> str:
        match = re.compile(r"\{(\w+(?:=\w+)?)\}|(\w)").match(self._text, self._at)
        if match is None:
            raise RegexSyntaxError(f"'{self._text}': a property name is missing after \\p")
        self._at = match.end()
        name = match[1] or match[2]
        if name in _POSIX and not (negated and in_class):
            return _POSIX[name] if in_class else f"[{'^' if negated else ''}{_POSIX[name]}]"
        if not in_class and name in _LETTER_NAMES:
            return r"(?u:[\W\d_])" if negated else r"(?u:[^\W\d_])"
        if not in_class and name in _NUMBER_NAMES:
            return r"(?u:\D)" if negated else r"(?u:\d)"
        where = " inside […]" if in_class else ""
        raise UnsupportedRegexError(
            f"'{self._text}': the property \\p{{{name}}}{where} is not supported; known: {', '.join(_POSIX)}, L, Nd"
        )

    def _class(self) -> str:
        """A class after its `[`, as an expression that matches one character."""
        negated = self._text.startswith("^", self._at)
        self._at += negated
        items, right = "", None
        nested: list[str] = []
        while True:
            if self._at >= len(self._text):
                raise RegexSyntaxError(f"'{self._text}': a class […] is not closed")
            if self._text.startswith("&&", self._at):
                self._at += 2
                right = self._class_rest()
                break
            character = self._text[self._at]
            if character == "]" and (items or nested):
                self._at += 1
                break
            if character == "\\":
                items += self._escape(in_class=True)
                continue
            self._at += 1
            if character == "[":
                nested.append(self._class())
            else:
                items += "\\" + character if character in "[]&|~" else character
        return _one_character(items, nested, right, negated=negated)

    def _class_rest(self) -> str:
        """The right side of an intersection, up to the end of the class around it."""
        inner = _Translator("[" + self._text[self._at :])
        inner._at = 1
        translated = inner._class()
        self._at += inner._at - 1
        return translated


def _one_character(items: str, nested: list[str], right: str | None, *, negated: bool) -> str:
    if not nested and right is None:
        return f"[{'^' if negated else ''}{items}]"
    parts = ([f"[{items}]"] if items else []) + nested
    left = parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
    whole = left if right is None else f"(?={left}){right}" if parts else right
    return rf"(?:(?!{whole})[\s\S])" if negated else f"(?:{whole})"
