"""A compiled pipeline as a version: its plan as a document, and the modules that it uses."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from flowrun.core.units import format_duration
from flowrun.errors import StateError
from flowrun.graph.fingerprint import fingerprint
from flowrun.masking import masked_json
from flowrun.plan.changelog import changelog_modes
from flowrun.plan.explain import plan_json
from flowrun.plan.nodes import NodeHints, Plan, Settings, walk_plan
from flowrun.runners.compile import CompiledPipeline
from flowrun.runners.job_modules import modules_of_job
from flowrun.runners.versions.records import Outcome, PipelineVersion
from flowrun.runtime.cluster.job_files import JobFiles, users_cache

_MS = "_ms"
_NOT_SHOWN = frozenset({"letter_origin", "auto_parallelism"})
"""Settings that follow from others."""
_PLACES = {"slot_sharing_group", "chaining", "state_ttl_ms", "on_error", "letters_to"}


def version_of(
    compiled: CompiledPipeline,
    began_ms: int,
    *,
    files: JobFiles | None = None,
    restored_from: str | None = None,
    outcome: Outcome = Outcome.RAN,
) -> PipelineVersion:
    """A compiled pipeline as a version that is not kept yet: its number is 0.

    Args:
        compiled: the pipeline.
        began_ms: when it is, or was, started; epoch ms.
        files: its modules; None: it has none.
        restored_from: the savepoint or checkpoint that it begins at.
        outcome: what becomes of it.
    """
    return PipelineVersion(
        0,
        compiled.text,
        fingerprint(compiled.job_graph),
        began_ms,
        plan_document(compiled),
        () if files is None else files.files,
        restored_from,
        outcome,
    )


def modules_in_cache(compiled: CompiledPipeline, functions_from: Path | None) -> JobFiles:
    """The modules beside a pipeline that it uses; their contents are put into the user's cache, by their digests.

    A version can be gone back to with the modules that it had, whatever is in the folder by then. They are looked for in the cache, of
    which only this user writes, and not in the folder of state: code is not run because state has it.

    Raises:
        PipelineError: they are too many or too large, or cannot be read.
        ClusterError: the cache cannot be used.
    """
    files = modules_of_job(compiled.text, functions_from)
    if files.files:
        cache = users_cache()
        for file in files.files:
            cache.content(file, files.read_file)
    return files


def plan_document(compiled: CompiledPipeline) -> dict[str, Any]:
    """What `flowrun explain --format json` shows of the optimised plan, with what the user said of each step, and the settings.

    Secrets are masked, whatever option they are in.
    """
    plan = compiled.optimised
    document = plan_json(plan, changelog_modes(plan))
    for shown, node in zip(document["nodes"], walk_plan(plan), strict=True):
        shown.update(_hints(node.hints))
    document["settings"] = _settings(plan)
    document["delivery"] = [g.to_json() for g in compiled.guarantees]
    shown = masked_json(json.loads(json.dumps(document, default=str)))
    assert isinstance(shown, dict)
    return shown


def _hints(hints: NodeHints) -> dict[str, Any]:
    plain = NodeHints()
    return {
        name: _shown(getattr(hints, name), name)
        for name in sorted(_PLACES)
        if getattr(hints, name) != getattr(plain, name)
    }


def _settings(plan: Plan) -> dict[str, Any]:
    """The settings by name, in the order in which they are declared; those of a part as `checkpoint.interval`."""
    found: dict[str, Any] = {}
    for field in fields(Settings):
        if field.name not in _NOT_SHOWN:
            _add(found, field.name, getattr(plan.settings, field.name))
    return found


def _add(found: dict[str, Any], name: str, value: Any) -> None:
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            _add(found, f"{name}.{field.name}", getattr(value, field.name))
        return
    found[name.removesuffix(_MS)] = _shown(value, name)


def _shown(value: Any, name: str) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_shown(v, name) for v in value]
    if name.endswith(_MS) and isinstance(value, int):
        return format_duration(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def modules_of_version(version: PipelineVersion) -> JobFiles:
    """The modules that a version had, with their contents, from the user's cache.

    Raises:
        StateError: one is not there any more.
        ClusterError: the cache cannot be used.
    """

    def missing(digest: str) -> bytes:
        path = next(f.path for f in version.files if f.digest == digest)
        raise StateError(
            f"the module {path} as version {version.number} had it is not in this user's cache any more",
            hint="put it back, and run that version's text by hand: flowrun history --text shows it",
        )

    if not version.files:
        return JobFiles()
    cache = users_cache()
    return JobFiles(version.files, {f.digest: cache.content(f, missing) for f in version.files})
