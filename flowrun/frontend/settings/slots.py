"""The settings `slots` and `slot_sharing_groups`: their specification, and what is read from them."""

from __future__ import annotations

from collections.abc import Collection

from flowrun.core.resources import ResourceSpec, SlotSettings, SlotSharingGroup
from flowrun.core.units import parse_memory_bytes
from flowrun.errors import near_matches
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.settings.recovery import or_default
from flowrun.frontend.trees.spec import (
    DurationValue,
    IntegerValue,
    KeySpec,
    MapValue,
    NumberValue,
    RecordSpec,
    RecordValue,
    Section,
    TextValue,
)

DEFAULT_GROUP = "default"
"""The group of steps that name none and inherit none."""
_MOST_CORES = 1_000_000
_MEMORY = TextValue("a memory size such as 512mb")

SLOTS = RecordSpec(
    "slots",
    "slots",
    "The slots in which the job's subtasks run, on the embedded engine: each runs at most one subtask of every task.",
    (
        KeySpec(
            "number",
            IntegerValue(1, 32_768),
            "How many there are. A job that needs more at one time is refused; in batch mode stages wait for each other.",
            default="as many as the job needs",
        ),
        KeySpec(
            "cpu",
            NumberValue(positive=True),
            "CPU cores that the slots divide among them. They are counted, not enforced.",
            default="not counted",
        ),
        KeySpec(
            "memory",
            _MEMORY,
            "Memory that the slots divide among them. It is counted, not enforced.",
            default="not counted",
        ),
        KeySpec(
            "request_timeout",
            DurationValue(zero=True),
            "How long a job that has no slot waits until enough are free; then it fails. 0: for ever.",
            default="5m",
        ),
    ),
)

SLOT_SHARING_GROUPS = MapValue(
    RecordValue(
        RecordSpec(
            "slot_sharing_group",
            "a slot sharing group",
            "What each slot of a group has.",
            (
                KeySpec(
                    "cpu", NumberValue(positive=True), "CPU cores of a slot.", default="an equal share of `slots.cpu`"
                ),
                KeySpec("memory", _MEMORY, "Memory of a slot.", default="an equal share of `slots.memory`"),
            ),
        )
    ),
    TextValue("a group name"),
)


def read_slots(section: Section | None, diagnostics: Diagnostics) -> SlotSettings:
    """Settings of slots, with defaults for what is absent; reports sizes that are none."""
    default = SlotSettings()
    if section is None:
        return default
    return SlotSettings(
        section.integer("number"),
        _resources(section, diagnostics),
        or_default(section.integer("request_timeout"), default.request_timeout_ms),
    )


def read_slot_sharing_groups(section: Section, diagnostics: Diagnostics) -> tuple[SlotSharingGroup, ...]:
    """The groups of which the settings say what their slots have, in their order; reports sizes that are none."""
    found = []
    for name, named in section.named("slot_sharing_groups").items():
        if isinstance(named.value, Section):
            resources = _resources(named.value, diagnostics)
            found.append(SlotSharingGroup(name, resources.cpu_cores, resources.memory_bytes))
    return tuple(found)


def check_groups_are_used(section: Section | None, used: Collection[str], diagnostics: Diagnostics) -> None:
    """Report groups of the settings that nothing is in."""
    known = {DEFAULT_GROUP, *used}
    for name, named in ({} if section is None else section.named("slot_sharing_groups")).items():
        if name not in known:
            close = near_matches(name, known)
            diagnostics.error(
                f"no source, step or sink is in the slot sharing group '{name}'",
                named.location,
                hint=f"did you mean '{close[0]}'?"
                if close
                else "put one into it with 'slot_sharing_group', or leave it out",
            )


def _resources(section: Section, diagnostics: Diagnostics) -> ResourceSpec:
    memory = 0
    scalar = section.scalar("memory")
    if scalar is not None:
        try:
            memory = parse_memory_bytes(scalar.text)
            if not memory:
                raise ValueError("it must be more than 0")
        except ValueError as error:
            diagnostics.error(f"'memory' expects a memory size, got '{scalar.text}'", scalar.location, hint=str(error))
    cpu = section.number("cpu") or 0.0
    if cpu > _MOST_CORES:
        diagnostics.error(f"'cpu' is at most {_MOST_CORES} cores, got {cpu:g}", section.value_at("cpu"))
        cpu = 0.0
    return ResourceSpec(cpu, memory)
