"""LIKE: what a new table takes over from another one. The rules are Flink's."""

from __future__ import annotations

from dataclasses import replace

from flowrun.errors import ExpressionError
from flowrun.frontend.sql.script.statements import (
    ColumnKind,
    ColumnSyntax,
    CreateTable,
    LikeChoice,
    LikeFeature,
    LikeSyntax,
    OptionSyntax,
)
from flowrun.frontend.sql.spans import error_at

_FEATURES = {ColumnKind.COMPUTED: LikeFeature.GENERATED, ColumnKind.METADATA: LikeFeature.METADATA}


def merged_with(table: CreateTable, base: CreateTable, problems: list[ExpressionError]) -> CreateTable:
    """The table with what its LIKE takes over from `base`, whose columns come first; what both have goes to `problems`."""
    like = table.like
    assert like is not None
    merged = replace(
        table,
        columns=_columns(table, base, like, problems),
        options=_options(table, base, like, problems),
        comment=table.comment or base.comment,
    )
    if _takes(like, LikeFeature.PARTITIONS, bool(table.partitions and base.partitions), table, problems):
        merged = replace(merged, partitions=table.partitions or base.partitions)
    if _takes(like, LikeFeature.DISTRIBUTION, bool(table.distribution and base.distribution), table, problems):
        merged = replace(merged, distribution=table.distribution or base.distribution)
    if _takes(like, LikeFeature.CONSTRAINTS, bool(table.primary_key and base.primary_key), table, problems):
        merged = replace(merged, primary_key=table.primary_key or base.primary_key)
    if _takes(like, LikeFeature.WATERMARKS, bool(table.watermark and base.watermark), table, problems):
        merged = replace(merged, watermark=table.watermark or base.watermark)
    return merged


def _takes(
    like: LikeSyntax, feature: LikeFeature, both: bool, table: CreateTable, problems: list[ExpressionError]
) -> bool:
    choice = like.choice(feature)
    if choice is LikeChoice.INCLUDING and both:
        remedy = (
            "EXCLUDING"
            if feature in (LikeFeature.PARTITIONS, LikeFeature.CONSTRAINTS, LikeFeature.DISTRIBUTION)
            else "OVERWRITING"
        )
        message = f"both tables have {feature.value}"
        problems.append(
            error_at(message, table.name[-1].span, f"LIKE … ({remedy} {feature.value}) keeps those of the new table")
        )
    return choice is not LikeChoice.EXCLUDING


def _columns(
    table: CreateTable, base: CreateTable, like: LikeSyntax, problems: list[ExpressionError]
) -> tuple[ColumnSyntax, ...]:
    own = {c.name.text: c for c in table.columns}
    taken: list[ColumnSyntax] = []
    for column in base.columns:
        feature = _FEATURES.get(column.kind)
        choice = LikeChoice.INCLUDING if feature is None else like.choice(feature)
        mine = own.get(column.name.text)
        if choice is LikeChoice.EXCLUDING:
            continue
        if mine is None:
            taken.append(column)
        elif choice is LikeChoice.OVERWRITING and mine.kind is column.kind:
            taken.append(own.pop(column.name.text))
        else:
            hint = None if feature is None else f"LIKE … (OVERWRITING {feature.value}) keeps that of the new table"
            problems.append(
                error_at(f"column '{column.name.text}' is already in the other table", mine.name.span, hint)
            )
    return (*taken, *own.values())


def _options(
    table: CreateTable, base: CreateTable, like: LikeSyntax, problems: list[ExpressionError]
) -> tuple[OptionSyntax, ...]:
    choice = like.choice(LikeFeature.OPTIONS)
    if choice is LikeChoice.EXCLUDING:
        return table.options
    own = {o.key: o for o in table.options}
    if choice is LikeChoice.INCLUDING:
        for option in base.options:
            if option.key in own:
                hint = "LIKE … (OVERWRITING OPTIONS) keeps those of the new table"
                problems.append(
                    error_at(f"option '{option.key}' is already in the other table", own[option.key].key_span, hint)
                )
    return (*(o for o in base.options if o.key not in own), *table.options)
