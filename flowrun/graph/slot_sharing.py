"""Slot sharing groups and co-location of a job: what its operators say of them, put together and checked."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.resources import ResourceProfile, ResourceSpec, SlotSharingGroup
from flowrun.errors import PipelineError
from flowrun.graph.job_graph import JobVertex
from flowrun.graph.stream_graph import StreamNode


def slot_sharing_groups(
    nodes: Sequence[StreamNode], settings: Sequence[SlotSharingGroup]
) -> tuple[SlotSharingGroup, ...]:
    """The groups whose slots have resources of their own, by name.

    Args:
        nodes: the operators, of which some may say what a slot of their group has.
        settings: what the job's settings say of groups.

    Raises:
        PipelineError: two operators, or an operator and the settings, say different things of one group.
    """
    found: dict[str, tuple[ResourceSpec, str]] = {}
    said = [(group.name, group.resources, "the job's settings") for group in settings]
    said += [(n.slot_sharing_group, n.slot_resources, f"'{n.name}'") for n in nodes if n.slot_resources is not None]
    for name, resources, where in said:
        if resources.is_unspecified:
            continue
        other, first = found.setdefault(name, (resources, where))
        if other != resources:
            raise PipelineError.of(
                f"{first} and {where} give the slots of group '{name}' different resources: {other}, and {resources}",
                hint="give both the same, give one of them none, or use groups of two names",
            )
    return tuple(SlotSharingGroup(name, spec.cpu_cores, spec.memory_bytes) for name, (spec, _) in sorted(found.items()))


def check_resources(groups: Sequence[SlotSharingGroup], vertices: Sequence[JobVertex], *, together: bool) -> None:
    """Pass if a slot of each group has what its operators ask for.

    Args:
        groups: with their resources.
        vertices: the chains.
        together: one subtask of each vertex of a group may be in one slot at a time; else they come one after the other.

    Raises:
        PipelineError: they ask for more.
    """
    for group in groups:
        members = [v for v in vertices if v.slot_sharing_group == group.name and not v.min_resources.is_unspecified]
        for several in [members] if together else [[v] for v in members]:
            needed = ResourceSpec()
            for vertex in several:
                needed = needed.merge(vertex.min_resources)
            if not ResourceProfile.of(group.resources).covers(ResourceProfile.of(needed)):
                names = ", ".join(f"'{v.name}'" for v in several)
                raise PipelineError.of(
                    f"a slot of group '{group.name}' has {group.resources}, less than {names} need: {needed}",
                    hint="give the group more, let its operators ask for less, or put some of them into another group",
                )


def co_location_key(chain: Sequence[StreamNode]) -> str | None:
    """The one key of the operators of a chain; None if they have none.

    Raises:
        PipelineError: there are two.
    """
    owner: StreamNode | None = None
    for node in chain:
        if node.co_location_key is None:
            continue
        if owner is not None and owner.co_location_key != node.co_location_key:
            raise PipelineError.of(
                f"'{owner.name}' and '{node.name}' share a task but have the co-location keys "
                f"'{owner.co_location_key}' and '{node.co_location_key}'",
                hint="give both one key, or start a new chain between them",
            )
        owner = owner or node
    return None if owner is None else owner.co_location_key


def check_co_location(vertices: Sequence[JobVertex]) -> None:
    """Pass if subtasks i of all vertices with one key can be in one slot.

    Raises:
        PipelineError: they differ in parallelism or slot sharing group.
    """
    first: dict[str, JobVertex] = {}
    for vertex in vertices:
        if vertex.co_location_key is None:
            continue
        other = first.setdefault(vertex.co_location_key, vertex)
        for what, one, two in (
            ("parallelism", other.parallelism, vertex.parallelism),
            ("slot sharing group", other.slot_sharing_group, vertex.slot_sharing_group),
        ):
            if one != two:
                raise PipelineError.of(
                    f"'{other.name}' and '{vertex.name}' have the co-location key '{vertex.co_location_key}', "
                    f"but {what} {one} and {two}",
                    hint=f"operators that run side by side need the same {what}",
                )
