"""What becomes of the state of one operator that both the savepoint and the pipeline have, or only one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from flowrun.api.accumulators import AccumulatorForm, accumulator_remedy, form_change
from flowrun.api.operator import DescribesState
from flowrun.api.state import KEY_COLUMNS_METADATA, migrations_of
from flowrun.core.record import record
from flowrun.errors import near_matches
from flowrun.graph.job_graph import ChainedOperator, JobVertex
from flowrun.operators.state_meanings import STRUCTURAL_COLUMNS, Meanings, state_accumulators, state_meanings
from flowrun.runtime.checkpoint.comparison import Layout, OperatorComparison, Problem, StateChange, TableFacts
from flowrun.runtime.checkpoint.connector_state import connector_state_problems
from flowrun.state.checkpoints import KeyedTableState, OperatorMetadata
from flowrun.state.schema_migration import differences
from flowrun.state.storage.folding import restored_schema

COMMITTABLES = "committables"
"""Name of the operator state in which sinks keep what they wrote but did not commit."""

_AFRESH = "undo the change, or give it a new uid to start it without its old state"


@record
class Recorded:
    """What a savepoint says of an operator's state.

    Attributes:
        meanings: what the columns of its tables held.
        accumulators: `table.column` → what the accumulators of users' aggregates were.
    """

    meanings: Meanings
    accumulators: Mapping[str, AccumulatorForm]


def table_facts(saved: OperatorMetadata) -> tuple[TableFacts, ...]:
    """What the savepoint has of an operator, without reading files; pieces without rows are left out."""
    facts = []
    for name, states in keyed_states(saved).items():
        references = [r for state in states for r in state.files]
        size = sum({r.file.path: r.file.size for r in references}.values())
        exact = all(state.key is None for state in states) and all(r.live is None for r in references)
        rows = sum(r.file.rows for r in references)
        if rows:
            facts.append(TableFacts(name, True, size, rows if exact else None))
    rows_of: dict[str, int] = {}
    for subtask in saved.subtasks.values():
        for name, state in subtask.operator.items():
            rows_of[name] = rows_of.get(name, 0) + state.rows.num_rows
    facts += [TableFacts(name, False, 0, rows) for name, rows in rows_of.items() if rows]
    return tuple(facts)


def keyed_states(saved: OperatorMetadata) -> dict[str, list[KeyedTableState]]:
    """The keyed tables of an operator, each from all its old subtasks."""
    tables: dict[str, list[KeyedTableState]] = {}
    for _, subtask in sorted(saved.subtasks.items()):
        for name, state in subtask.keyed.items():
            tables.setdefault(name, []).append(state)
    return tables


def has_state(saved: OperatorMetadata) -> bool:
    """Whether anything would be lost if the operator were not restored."""
    return reads_on(saved) or bool(table_facts(saved))


def reads_on(saved: OperatorMetadata) -> bool:
    """Whether it is a source that has not come to its end."""
    return saved.enumerator is not None and not saved.finished


def is_keyed(operator: ChainedOperator) -> bool:
    """Whether an operator may have keyed state."""
    return bool(operator.state_keys) or (
        isinstance(operator.factory, DescribesState) and bool(operator.factory.state_schemas())
    )


def dropped_operator(saved: OperatorMetadata, newcomers: Sequence[ChainedOperator]) -> OperatorComparison:
    """The state of an operator that the pipeline does not have; `newcomers` are operators that the savepoint does not have."""
    tables = table_facts(saved)
    known = f"'{saved.name}' ({_identity(saved.uid)})"
    pending = sum(t.rows or 0 for t in tables if t.name == COMMITTABLES and not t.keyed)
    message = f"{known} has state in the savepoint, but the pipeline has no such operator any more"
    if pending:
        message += f"; {pending} result{'' if pending == 1 else 's'} that it wrote but had not committed would be lost"
    renamed = _successor(saved, newcomers)
    hint = "put it back, or leave its state behind with --allow-non-restored-state"
    if renamed is not None:
        hint = f"{_renamed_hint(saved, renamed)}, or leave its state behind with --allow-non-restored-state"
    before = Layout(saved.parallelism, saved.max_parallelism)
    keyed = any(t.keyed for t in tables)
    problem = Problem(message, hint, loses_state=True)
    return OperatorComparison(
        saved.operator_id, saved.name, saved.uid, StateChange.DROPPED, before, None, keyed, tables, problems=(problem,)
    )


def new_operator(
    operator: ChainedOperator,
    vertex: JobVertex,
    saved: OperatorMetadata | None,
    dropped: Sequence[OperatorMetadata],
) -> OperatorComparison:
    """An operator that has no state in the savepoint.

    Args:
        operator: in the pipeline.
        vertex: its vertex.
        saved: in the savepoint, if it is there at all.
        dropped: operators with state that the pipeline does not have.
    """
    keyed = is_keyed(operator)
    if operator.source is not None or operator.sink is not None or (saved is not None and saved.finished):
        # of one that was there, empty state is state: nothing to read again, nothing to commit, nothing more to fire
        change = StateChange.NEW if saved is None else StateChange.KEPT
    else:
        change = StateChange.NEW if keyed else StateChange.STATELESS
    notes = [
        f"looks like the dropped '{d.name}' ({_identity(d.uid)}): {_renamed_hint(d, operator)}"
        for d in dropped
        if d.name == operator.name
    ]
    if change is StateChange.NEW and saved is not None and not notes:
        notes.append("it had no state yet")
    before = None if saved is None else Layout(saved.parallelism, saved.max_parallelism)
    after = Layout(vertex.parallelism, vertex.max_parallelism)
    return OperatorComparison(
        operator.operator_id, operator.name, operator.uid, change, before, after, keyed, notes=tuple(notes)
    )


def common_operator(
    operator: ChainedOperator,
    vertex: JobVertex,
    saved: OperatorMetadata,
    recorded: Recorded,
) -> OperatorComparison:
    """An operator of the pipeline that has state in the savepoint.

    Args:
        operator: in the pipeline.
        vertex: its vertex, with the number of key groups that it will have.
        saved: in the savepoint.
        recorded: what the columns of its tables held when the savepoint was taken, as far as it is known.
    """
    before = Layout(saved.parallelism, saved.max_parallelism)
    after = Layout(vertex.parallelism, vertex.max_parallelism)
    tables = table_facts(saved)
    keyed = is_keyed(operator) or any(t.keyed for t in tables)
    compared = _table_differences(operator, saved, recorded)
    found = _role_problems(operator, saved, tables) or [*compared.wrong, *connector_state_problems(operator, saved)]
    problems = tuple(
        Problem(
            f"the state of '{operator.name}' ({_identity(operator.uid)}) does not fit: {text}",
            compared.remedies.get(text) or _misfit_hint(operator, saved),
        )
        for text in found
    )
    additions = compared.additions
    change = StateChange.INCOMPATIBLE if problems else StateChange.CHANGED if additions else StateChange.KEPT
    return OperatorComparison(
        operator.operator_id,
        operator.name,
        operator.uid,
        change,
        before,
        after,
        keyed,
        tables,
        tuple(additions),
        problems,
        (*compared.notes, *_notes(operator, saved)),
    )


def _identity(uid: str | None) -> str:
    return "no uid: found by structure" if uid is None else f"uid '{uid}'"


def _successor(saved: OperatorMetadata, newcomers: Sequence[ChainedOperator]) -> ChainedOperator | None:
    """The new operator that the dropped one seems to have become: of the same name, else of nearly the same."""
    by_name = {o.name: o for o in newcomers}
    if saved.name in by_name:
        return by_name[saved.name]
    close = near_matches(saved.name, by_name, limit=1)
    return by_name[close[0]] if close else None


def _renamed_hint(saved: OperatorMetadata, operator: ChainedOperator) -> str:
    if saved.uid is not None:
        return f"if '{operator.name}' is to go on from it, give it the uid '{saved.uid}'"
    given = f" without the uid '{operator.uid}'" if operator.uid is not None else ""
    return (
        f"if '{operator.name}' is to go on from it, put it back where it was{given}: what is upstream of an operator "
        "without a uid must stay (give uids, and the next savepoint has them)"
    )


def _misfit_hint(operator: ChainedOperator, saved: OperatorMetadata) -> str:
    if operator.uid is None and saved.name != operator.name:
        return (
            f"it is where '{saved.name}' was: what is upstream of an operator without a uid must stay; put it back as it was "
            "(give uids, and the next savepoint has them)"
        )
    return _AFRESH


def _role_problems(operator: ChainedOperator, saved: OperatorMetadata, tables: Sequence[TableFacts]) -> list[str]:
    """State of a kind that the operator cannot have at all."""
    found = []
    if reads_on(saved) and operator.source is None:
        found.append("it was a source, and is none now")
    if any(t.name == COMMITTABLES and not t.keyed for t in tables) and operator.sink is None:
        found.append("it was a sink with results that are not committed yet, and is none now")
    if any(t.keyed for t in tables) and not is_keyed(operator):
        names = ", ".join(f"'{t.name}'" for t in tables if t.keyed)
        found.append(f"it had keyed state ({names}), and keeps none now")
    return found


@dataclass(slots=True)
class _Differences:
    """What differs between the tables of a savepoint and those of a pipeline.

    Attributes:
        wrong: what does not fit.
        remedies: what to do about some of it.
        additions: how rows become such as the pipeline keeps.
        notes: what else to know.
    """

    wrong: list[str] = field(default_factory=list)
    remedies: dict[str, str] = field(default_factory=dict)
    additions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _table_differences(operator: ChainedOperator, saved: OperatorMetadata, recorded: Recorded) -> _Differences:
    """What differs of the keyed tables that have rows."""
    differs = _Differences()
    if not isinstance(operator.factory, DescribesState):
        return differs
    expected = operator.factory.state_schemas()
    meanings, accumulators = state_meanings(operator.factory), state_accumulators(operator.factory)
    with_rows = {t.name for t in table_facts(saved) if t.keyed}
    for name, states in keyed_states(saved).items():
        if name not in with_rows:
            continue
        if name not in expected:
            differs.wrong.append(f"table '{name}' is not kept any more")
            continue
        old, new = restored_schema(states[0].schema), restored_schema(expected[name])
        wrong = _key_differences(old, new) or differences(old, new)
        if wrong and (migrated := _migrated(old, new)):
            wrong, old = differences(migrated.schema, new), migrated.schema
            differs.additions += [f"{name}: {text}" for text in ([] if wrong else migrated.texts)]
        changed = _other_meanings(recorded.meanings.get(name, {}), meanings.get(name, {}))
        wrong = wrong or [text for column, text in changed.items() if column in STRUCTURAL_COLUMNS]
        differs.wrong += [f"{name}: {text}" for text in wrong]
        if not wrong:
            added = [f for f in new if f.name not in old.names]
            differs.additions += [f"{name}: column '{f.name}' {f.type} is added, NULL in what is there" for f in added]
            differs.additions += _inner_additions(name, old, new)
            differs.notes += [f"{name}: {text}" for text in changed.values()]
        for column, form in accumulators.get(name, {}).items():
            if column in old.names:
                _compare_accumulators(
                    f"{name}: column '{column}'", recorded.accumulators.get(f"{name}.{column}"), form, differs
                )
    return differs


@record
class _Migrated:
    """A table after the user's functions have migrated its values, and what they do."""

    schema: pa.Schema
    texts: tuple[str, ...]


def _migrated(old: pa.Schema, new: pa.Schema) -> _Migrated | None:
    """What becomes of a table by the migrations that its new schema names; None: they change nothing."""
    changed = {
        column: function
        for column, function in migrations_of(new).items()
        if column in old.names and differences(pa.schema([old.field(column)]), pa.schema([new.field(column)]))
    }
    if not changed or _key_differences(old, new):
        return None
    fields = [new.field(f.name) if f.name in changed else f for f in old]
    texts = tuple(
        f"column '{c}' {old.field(c).type} becomes {new.field(c).type}, by {function}"
        for c, function in changed.items()
    )
    return _Migrated(pa.schema(fields, old.metadata), texts)


def _compare_accumulators(
    place: str, before: AccumulatorForm | None, after: AccumulatorForm, differs: _Differences
) -> None:
    """Add what becomes of the accumulators of a user's aggregate."""
    if before is None or (not (before.type and after.type) and before.version == after.version):
        differs.notes.append(
            f"{place}: what its accumulators are, or were, is not known: whether they fit shows when they are read "
            "(annotate what create_accumulator gives)"
        )
        return
    unreadable, filled = form_change(before, after)
    differs.additions += [f"{place}: {text}" for text in filled]
    for text in unreadable:
        differs.wrong.append(f"{place}: {text}")
        differs.remedies[differs.wrong[-1]] = accumulator_remedy(before)


def _key_differences(old: pa.Schema, new: pa.Schema) -> list[str]:
    """A key column that was added is no nullable column that could be filled with NULL: rows would be of no key that comes again."""
    before, after = _keys(old), _keys(new)
    if before is None or after is None or before == after:
        return []
    return [f"the key columns were {', '.join(before) or 'none'}, are {', '.join(after) or 'none'} now"]


def _keys(schema: pa.Schema) -> list[str] | None:
    """The key columns of a state table; None if it does not say."""
    count = (schema.metadata or {}).get(KEY_COLUMNS_METADATA)
    return None if count is None else list(schema.names[1 : int(count) + 1])


def _inner_additions(table: str, old: pa.Schema, new: pa.Schema) -> list[str]:
    """Columns whose own fields grew."""
    return [
        f"{table}: column '{f.name}' becomes {f.type}; what is added is NULL in what is there"
        for f in new
        if f.name in old.names and not old.field(f.name).type.equals(f.type)
    ]


def _other_meanings(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Column → how what it holds changed, of columns of one name."""
    return {
        column: f"column '{column}' held {text}, would hold {after[column]} now"
        for column, text in before.items()
        if column in after and after[column] != text
    }


def _notes(operator: ChainedOperator, saved: OperatorMetadata) -> list[str]:
    notes = []
    if saved.name != operator.name:
        notes.append(f"was called '{saved.name}'")
    if keyed_states(saved) and not isinstance(operator.factory, DescribesState):
        notes.append("it does not say which state it keeps: whether the columns fit shows when it is restored")
    return notes
