"""All rules of `flowrun lint`, and the findings of a pipeline, without those that its text silences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flowrun.errors import Diagnostic, PipelineError, did_you_mean
from flowrun.frontend.source_text import SourceText
from flowrun.runners.compile import CompiledPipeline
from flowrun.runners.lint import columns, joins, patterns, sinks, state, times
from flowrun.runners.lint.comments import silenced_lines, unknown_rules
from flowrun.runners.lint.rule import LintFinding, LintRule, Subject

RULES: tuple[LintRule, ...] = (
    state.RULE,
    times.RULE,
    sinks.SUPERSEDED,
    columns.RULE,
    joins.RULE,
    patterns.RULE,
    sinks.EMPTY,
)
BY_NAME: Mapping[str, LintRule] = {rule.name: rule for rule in RULES}


def rules_named(select: Sequence[str], ignore: Sequence[str]) -> tuple[LintRule, ...]:
    """The rules that are asked for; without `select` all, in both cases without those of `ignore`.

    Raises:
        PipelineError: there is no rule of a name.
    """
    unknown = [name for name in (*select, *ignore) if name not in BY_NAME]
    if unknown:
        raise PipelineError(
            [Diagnostic(f"there is no rule '{name}'", hint=did_you_mean(name, BY_NAME)) for name in unknown]
        )
    return tuple(r for r in RULES if (not select or r.name in select) and r.name not in ignore)


def lint(compiled: CompiledPipeline, rules: Iterable[LintRule]) -> tuple[LintFinding, ...]:
    """What rules find in a pipeline, in the order of its text, without what comments in it silence.

    Raises:
        PipelineError: a comment names no rule.
    """
    texts = _texts(compiled)
    wrong = [problem for text in texts for problem in unknown_rules(text, BY_NAME)]
    if wrong:
        raise PipelineError(wrong)
    silenced = {text.file: silenced_lines(text) for text in texts}
    subject = Subject(compiled)
    found = []
    for rule in rules:
        for message, remedy, at in rule.find(subject):
            if at is None or rule.name not in silenced.get(at.file, {}).get(at.line, frozenset()):
                found.append(LintFinding(rule.name, message, remedy, at))
    own = compiled.text.file_name
    found.sort(key=lambda f: (-1, 0) if f.location is None else (int(f.location.file != own), f.location.line))
    return tuple(dict.fromkeys(found))


def _texts(compiled: CompiledPipeline) -> list[SourceText]:
    kept = compiled.text
    texts = [SourceText(kept.file_name, kept.text)]
    if kept.project is not None:
        texts.append(SourceText(kept.project.file_name, kept.project.text))
        texts += [SourceText(name, text) for name, text in kept.project.scripts.items()]
    return texts
