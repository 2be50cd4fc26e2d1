"""What connectors and hooks keep in a checkpoint, damaged: whoever goes on from it says which member is wrong, or goes on."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flowrun.api.sink import Committable
from flowrun.api.state import OperatorState
from flowrun.core.clock import SystemClock
from flowrun.core.shapes import Shape, integer, members
from flowrun.errors import FlowrunError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.compile import compile_pipeline
from flowrun.runtime.checkpoint.assembly import pending_commits
from flowrun.runtime.checkpoint.compatibility import compare
from flowrun.runtime.jobmaster.hooks import MasterHooks
from flowrun.runtime.jobmaster.source_coordinator import SourceCoordinator
from flowrun.state.checkpoints import CheckpointMetadata, OperatorMetadata, OperatorSubtaskState
from flowrun.state.committables import COMMITTABLES_SCHEMA
from flowrun.state.storage.metadata_file import read_metadata, write_metadata
from flowrun.state.storage.state_path import resolve
from tests.fuzz.state import change
from tests.savepoint_builders import savepoint

_SPLITS = pa.schema(
    [(n, pa.string()) for n in ("split_id", "position")]
    + [(n, pa.int64()) for n in ("event_time", "watermark")]
    + [("idle", pa.bool_())]
)


class Offsets:
    """A hook that remembers one number, and says so."""

    name = "offsets"
    state_shape: Shape = staticmethod(members({"offset": integer()}))

    def trigger(self, checkpoint_id: int) -> Any:
        raise AssertionError("nothing is run here")

    def restore(self, checkpoint_id: int, state: Any) -> None:
        assert state is None or state["offset"] >= 0

    def complete(self, checkpoint_id: int) -> None: ...

    def abort(self, checkpoint_id: int) -> None: ...


class DamagedConnectorState:
    """A pipeline with each kind of source, and a savepoint of it whose connectors' state is damaged again and again.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._out = folder / "out"
        for name in ("lines", "units"):
            (folder / name).mkdir()
        self._out.mkdir()
        (folder / "lines" / "a.json").write_text('{"x": 1}\n{"x": 2}\n')
        pq.write_table(pa.table({"x": pa.array([1, 2], pa.int64())}), folder / "units" / "a.parquet")
        script = folder / "s.sql"
        script.write_text(
            "\n".join(
                f"CREATE TABLE {name} (x BIGINT) WITH ({with_});"
                for name, with_ in (
                    ("watched", f"'connector'='filesystem','path'='{folder}/lines','format'='json','source.monitor-interval'='1 s'"),
                    ("units", f"'connector'='filesystem','path'='{folder}/units','format'='parquet'"),
                    ("numbers", "'connector'='datagen','number-of-rows'='10'"),
                    ("out", f"'connector'='filesystem','path'='{self._out}','format'='json'"),
                )
            )
            + "\nINSERT INTO out SELECT x FROM watched UNION ALL SELECT x FROM units UNION ALL SELECT x FROM numbers"
            " UNION ALL SELECT x FROM (VALUES (1)) AS v (x);\n"
        )  # fmt: skip
        self.graph: JobGraph = compile_pipeline(script, {}).job_graph

    def whole(self) -> dict[str, Any]:
        """Enumerators and positions by the names of sources, committables, and hooks, as they should be."""
        lines = {"path": f"{self._folder}/lines/a.json", "offset": 9, "stop": None, "aligned": True}
        units = {"path": f"{self._folder}/units/a.parquet", "unit": 0, "row": 1, "stop": None}
        block = {"next": 2, "stop": 4, "origin_ms": 0}
        held = {"batch": 0, "row": 0}
        return {
            "enumerators": {
                "watched": {"pending": [{"id": "a", "position": lines}], "seen": [lines["path"]]},
                "units": {"pending": [{"id": "a", "position": units}], "seen": None},
                "numbers": {"next": 4, "origin_ms": 0, "returned": [{"id": "rows-2", "position": block}]},
                "values": [{"id": "values", "position": {}}],
            },
            "positions": {"watched": [dict(lines)], "units": [dict(units)], "numbers": [dict(block)], "values": [held]},
            "committables": [
                ["part-0", {"from": f"{self._out}/.part-0.x.inprogress", "to": f"{self._out}/part-0.json"}],
                ["done", {"mark": f"{self._out}/day=1/_SUCCESS"}],
            ],
            "hooks": {"offsets": {"offset": 3}},
        }

    def damaged(self, chance: random.Random) -> dict[str, Any]:
        """With one to three changes below the four parts."""
        state = self.whole()
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            part = state[chance.choice(list(state))]
            if part:
                change(part, chance)
        return state

    def resume(self, state: dict[str, Any]) -> list[str]:
        """Write a savepoint with this state, read it and go on as far as connectors are asked; gives what is wrong with it.

        Raises:
            Exception: whatever users must never see.
        """
        folder = self._folder / f"savepoint-{self._count}"
        self._count += 1
        folder.mkdir()
        write_metadata(resolve(str(folder)), self._metadata(copy.deepcopy(state)))
        metadata = read_metadata(str(folder))
        problems = []
        try:
            pending = pending_commits(metadata)
            problems = [p.message for o in compare(metadata, self.graph).operators for p in o.problems]
            MasterHooks([Offsets()]).restore(metadata)
        except FlowrunError as error:
            problems.append(error.message)
        if not problems:
            self._go_on(metadata, pending)
        return problems

    def _metadata(self, state: dict[str, Any]) -> CheckpointMetadata:
        metadata = savepoint(self.graph, keyed={}, enumerators=(), hooks=state["hooks"])
        operators = dict(metadata.operators)
        for vertex in self.graph.vertices:
            for operator in vertex.operators:
                saved = operators[operator.operator_id]
                if operator.source is not None:
                    name = _name(operator.name)
                    enumerator, positions = state["enumerators"].get(name), state["positions"].get(name)
                    rows = _split_rows(positions if isinstance(positions, list) else [positions])
                    operators[operator.operator_id] = _with(saved, enumerator, {"splits": rows})
                elif operator.sink is not None:
                    operators[operator.operator_id] = _with(
                        saved, None, {"committables": _commit_rows(state["committables"])}
                    )
        return CheckpointMetadata(
            **{f: getattr(metadata, f) for f in metadata.__dataclass_fields__ if f != "operators"}, operators=operators
        )

    def _go_on(self, metadata: CheckpointMetadata, pending: dict[str, tuple[Committable, ...]]) -> None:
        for vertex in self.graph.vertices:
            for operator in vertex.operators:
                saved = metadata.operators[operator.operator_id]
                if operator.source is not None:
                    coordinator = SourceCoordinator(operator.name, operator.source, 1, SystemClock())
                    with contextlib.suppress(FlowrunError):
                        coordinator.start(saved.enumerator)
                        coordinator.snapshot()
                    coordinator.close()
                committer = None if operator.sink is None else operator.sink.create_committer()
                if committer is not None:
                    with contextlib.suppress(FlowrunError):
                        committer.commit(pending.get(operator.operator_id, ()))


def _name(name: str) -> str:
    return next((n for n in ("watched", "units", "numbers") if n in name), "values")


def _with(saved: OperatorMetadata, enumerator: Any, states: dict[str, pa.Table]) -> OperatorMetadata:
    subtask = OperatorSubtaskState(saved.operator_id, {}, {n: OperatorState(rows) for n, rows in states.items()})
    fields = {f: getattr(saved, f) for f in saved.__dataclass_fields__}
    return OperatorMetadata(**{**fields, "subtasks": {0: subtask}, "enumerator": enumerator})


def _split_rows(positions: list[Any]) -> pa.Table:
    rows = [
        {"split_id": f"s{i}", "position": json.dumps(p), "event_time": None, "watermark": None, "idle": None}
        for i, p in enumerate(positions)
    ]
    return pa.Table.from_pylist(rows, _SPLITS)


def _commit_rows(committables: Any) -> pa.Table:
    return pa.Table.from_pylist(list(_commits(committables)), COMMITTABLES_SCHEMA)


def _commits(committables: Any) -> Iterator[dict[str, object]]:
    for entry in committables if isinstance(committables, list) else []:
        commit_id, payload = entry if isinstance(entry, list) and len(entry) == 2 else ("x", entry)
        yield {"checkpoint_id": 7, "commit_id": str(commit_id), "payload": json.dumps(payload)}
