"""What other systems call types and functions is told in words that exist here."""

from __future__ import annotations

import re

from flowrun.core.foreign_names import FOREIGN_FUNCTIONS, FOREIGN_TYPES
from flowrun.core.type_parser import KNOWN_TYPES
from flowrun.functions.registry import aggregate, scalar

SPECIAL_FORMS = {"APPROX_COUNT_DISTINCT", "CAST", "COALESCE", "IF", "TRY_CAST", "CROSS"}


def test_no_foreign_function_exists_here_under_its_name() -> None:
    assert not [n for n in FOREIGN_FUNCTIONS if scalar(n) or aggregate(n)]


def test_every_function_that_a_hint_names_exists() -> None:
    calls = {c[1] for text in FOREIGN_FUNCTIONS.values() if (c := re.match(r"([A-Z_]+)\(", text))}
    assert not [c for c in calls - SPECIAL_FORMS if scalar(c) is None and aggregate(c) is None]


def test_types_are_foreign_and_what_hints_name_is_not() -> None:
    assert not FOREIGN_TYPES.keys() & set(KNOWN_TYPES)
    assert not {t.split("(")[0].split("<")[0] for t in FOREIGN_TYPES.values()} - set(KNOWN_TYPES)
