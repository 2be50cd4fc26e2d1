"""The sinks of dead letters in a document: those without `from`, which settings, sources, steps or sinks name."""

from __future__ import annotations

from collections.abc import Iterator

from flowrun.errors import Location, did_you_mean, near_matches
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.names import sections
from flowrun.frontend.yaml.tables.options import flatten_options
from flowrun.plan.row_errors import LETTERS_SINK


def letter_sinks_of(document: Section, diagnostics: Diagnostics) -> frozenset[str]:
    """The names of the sinks that get dead letters.

    Args:
        document: the whole.
        diagnostics: receives names that are none of such sinks, and sinks that get neither rows nor dead letters.
    """
    sinks = sections(document.named("sinks"))
    of_letters = [name for name, section in sinks.items() if not section.has("from")]
    named = dict(reversed([*_named(document)]))
    for name, location in named.items():
        if name in sinks and name not in of_letters:
            hint = "write them to a sink of their own, one without 'from'"
            diagnostics.error(f"sink '{name}' gets the rows of its 'from': no dead letters", location, hint=hint)
        elif name not in document.named("sinks"):
            hint = did_you_mean(name, of_letters) or f"declare it: sinks: {{{name}: {{connector: …}}}}"
            diagnostics.error(f"there is no sink '{name}' for dead letters", location, hint=hint)
    if named.keys() <= document.named("sinks").keys():  # else a name is misspelt
        for name in of_letters:
            if name not in named:
                _report_without_input(name, sinks[name], diagnostics)
    return frozenset(of_letters) & named.keys()


def _report_without_input(name: str, section: Section, diagnostics: Diagnostics) -> None:
    misspelt = next((e for e in section.extra if near_matches(e.name, ["from"])), None)
    at = section.location if misspelt is None else misspelt.key.location
    hint = "say what it writes, or name it for dead letters: settings: {dead_letters: {sink: " + name + "}}"
    diagnostics.error("a sink needs the key 'from'", at, hint=hint if misspelt is None else "did you mean 'from'?")


def _named(document: Section) -> Iterator[tuple[str, Location]]:
    """Names of sinks for dead letters, and where they stand."""
    settings = document.section("settings")
    places = [(None if settings is None else settings.section("dead_letters"), "sink")]
    for group in ("sources", "steps", "sinks"):
        places += [(s.section("on_error"), "to") for s in sections(document.named(group)).values()]
    for section, key in places:
        scalar = None if section is None else section.scalar(key)
        if scalar is not None:
            yield scalar.text, scalar.location
    for source in sections(document.named("sources")).values():
        options = flatten_options(source, Diagnostics())
        if options is not None and LETTERS_SINK in options.values:
            yield str(options.values[LETTERS_SINK]), options.places[LETTERS_SINK]
