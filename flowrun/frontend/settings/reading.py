"""Checked settings, of a YAML document, of SET statements or of the command line alone, as those of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.core.constraints import Lengths, Nested, NotNull, SinkConstraints
from flowrun.core.cores import usable_cores
from flowrun.core.local_time import UTC_ZONE, zone_id
from flowrun.core.row_errors import LetterLimit, OnError
from flowrun.errors import PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.settings.declaration import SETTINGS
from flowrun.frontend.settings.recovery import or_default, read_checkpoint, read_restart
from flowrun.frontend.settings.slots import read_slot_sharing_groups, read_slots
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.checking import check_document
from flowrun.frontend.trees.nodes import YamlMapping
from flowrun.frontend.trees.overrides import OVERRIDE_FILE, apply_overrides
from flowrun.frontend.trees.spec import AUTO, RecordValue, Section
from flowrun.operators.function_scope import listed_packages, package_problem
from flowrun.plan.nodes import Settings


def read_settings(section: Section | None, diagnostics: Diagnostics) -> Settings:
    """Settings with defaults for what is absent; reports settings that contradict each other."""
    if section is None:
        return Settings()
    default = Settings()
    given = section.integer("parallelism")
    parallelism = usable_cores() if given == AUTO else given or default.parallelism
    max_parallelism = section.integer("max_parallelism")
    if max_parallelism is not None and max_parallelism < parallelism:
        diagnostics.error(
            f"'max_parallelism' ({max_parallelism}) is less than 'parallelism' ({parallelism})",
            section.value_at("max_parallelism"),
        )
    _check_packages(section, diagnostics)
    checkpoint = read_checkpoint(section.section("checkpoint"), diagnostics)
    if section.text("embedded_mode") == "batch" and checkpoint is not None:
        diagnostics.error(
            "'embedded_mode: batch' takes no checkpoints, but 'checkpoint' asks for some",
            section.value_at("embedded_mode"),
            hint="leave out one of the two; 'automatic' is batch where there are none",
        )
    mode = section.text("mode") or default.mode
    folder, sink, limit = _read_dead_letters(section, diagnostics)
    telemetry = section.section("telemetry")
    return Settings(
        parallelism=parallelism,
        auto_parallelism=given == AUTO,
        max_parallelism=max_parallelism,
        buffer_timeout_ms=or_default(section.integer("buffer_timeout"), default.buffer_timeout_ms),
        object_reuse=or_default(section.flag("object_reuse"), default.object_reuse),
        chaining=or_default(section.flag("chaining"), default.chaining),
        mode=mode,
        embedded_mode=section.text("embedded_mode") or default.embedded_mode,
        batch_rows=section.integer("batch_rows") or default.batch_rows,
        latency_interval_ms=section.integer("latency_interval"),
        cancellation_timeout_ms=or_default(section.integer("cancellation_timeout"), default.cancellation_timeout_ms),
        memory_watch=or_default(section.flag("memory_watch"), default.memory_watch),
        local_aggregation=or_default(section.flag("local_aggregation"), default.local_aggregation),
        state_ttl_ms=section.integer("state_ttl") or 0,
        cdc_events_duplicate=or_default(section.flag("cdc_events_duplicate"), default.cdc_events_duplicate),
        split_distinct=or_default(section.flag("split_distinct"), default.split_distinct),
        split_distinct_buckets=section.integer("split_distinct_buckets") or default.split_distinct_buckets,
        join_reorder=or_default(section.flag("join_reorder"), default.join_reorder),
        constraints=_constraints(section),
        time_zone=read_zone(section, diagnostics),
        on_error=OnError(section.text("on_error") or default.on_error.value),
        dead_letters=folder,
        dead_letter_sink=sink,
        letter_limit=limit,
        checkpoint=checkpoint,
        restart=read_restart(section.section("restart"), diagnostics),
        slots=read_slots(section.section("slots"), diagnostics),
        traces=telemetry is not None and telemetry.text("traces") == "otlp",
        slot_sharing_groups=read_slot_sharing_groups(section, diagnostics),
    )


def _read_dead_letters(section: Section, diagnostics: Diagnostics) -> tuple[str | None, str | None, LetterLimit]:
    """The folder of dead letters, or their sink, and how many there may be."""
    given = section.section("dead_letters")
    if given is None:
        return section.text("dead_letters"), None, LetterLimit()
    if given.has("folder") and given.has("sink"):
        hint = "leave out one of the two; sources, steps and sinks may name another sink in `on_error: {to: …}`"
        diagnostics.error("dead letters go to a 'folder' or to a 'sink', not to both", given.at("sink"), hint=hint)
    return (
        given.text("folder"),
        given.text("sink"),
        LetterLimit(given.integer("max_records"), given.number("max_percent")),
    )


def read_zone(section: Section, diagnostics: Diagnostics) -> str:
    """`time_zone` of a section, as plans call it; UTC if there is none, or if it is wrong, which is reported."""
    scalar = section.scalar("time_zone")
    if scalar is None:
        return UTC_ZONE
    try:
        return zone_id(scalar.text)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        diagnostics.error(message, scalar.location, hint=hint)
        return UTC_ZONE


def _constraints(section: Section) -> SinkConstraints:
    default = SinkConstraints()
    return SinkConstraints(
        NotNull(section.text("not_null_enforcer") or default.not_null),
        Nested(section.text("nested_constraint_enforcer") or default.nested),
        Lengths(section.text("type_length_enforcer") or default.lengths),
    )


def named_packages(section: Section | None) -> tuple[str, ...]:
    """The packages whose functions the pipeline may name; `read_settings` reports what can be none."""
    return () if section is None else listed_packages(s.text for s in section.scalars("functions"))


def _check_packages(section: Section, diagnostics: Diagnostics) -> None:
    for scalar in section.scalars("functions"):
        for wrong in filter(None, map(package_problem, listed_packages([scalar.text]))):
            hint = "name an installed package, or write a function of your own in a module beside the pipeline"
            diagnostics.error(wrong, scalar.location, hint=hint)


def overridden_settings(overrides: Mapping[str, str]) -> Settings:
    """The settings of a program that `{"settings.parallelism": "4"}` and the like say, and the defaults of all others.

    Raises:
        PipelineError: a value is wrong, or names no setting; carries every problem.
    """
    source = SourceText(OVERRIDE_FILE, "")
    diagnostics = Diagnostics(source)
    for path in overrides:
        if not path.startswith("settings."):
            diagnostics.error(
                f"a program has no '{path}'", None, hint="its settings can be set: --set settings.parallelism=4"
            )
    diagnostics.raise_if_errors()
    tree = apply_overrides(YamlMapping(source, 0, 0, ()), [f"{k}={v}" for k, v in overrides.items()], diagnostics)
    node = tree.get("settings") if isinstance(tree, YamlMapping) else None
    section = None if node is None else check_document(node, RecordValue(SETTINGS), diagnostics)
    settings = read_settings(section, diagnostics)
    if any(d.severity.value == "error" for d in diagnostics.found):
        raise PipelineError(diagnostics.found)
    return settings
