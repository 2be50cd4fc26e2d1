"""Change critical modules in small ways, one at a time, and say which changes no test notices.

    python -m tests.mutation [--sample N] [--seed N] [MODULE …]

Works on a copy of the repository. Exits with 1 if of the changes that matter a tenth or more went unnoticed. Changes of annotations,
those that are known to mean the same (`targets.EQUIVALENT`), and those of lines that tune only what something costs
(`targets.TUNED`), do not count. Uses Cosmic Ray (`pip install -e '.[mutation]'`).
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome

from tests.mutation.targets import EQUIVALENT, TARGETS, TUNED

ROOT = Path(__file__).parents[2]
TOLERATED = 0.1
_MISTAKES = frozenset(
    [
        *("Add_Sub", "Sub_Add", "Mul_FloorDiv", "FloorDiv_Mul", "Mod_FloorDiv", "BitAnd_BitOr", "BitOr_BitAnd"),
        *(
            "LShift_RShift",
            "RShift_LShift",
            "Lt_LtE",
            "LtE_Lt",
            "Gt_GtE",
            "GtE_Gt",
            "Lt_Gt",
            "LtE_GtE",
            "Gt_Lt",
            "GtE_LtE",
        ),
        *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is", "In_NotIn", "NotIn_In"),
    ]
)
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Survivor:
    """A change that no test noticed: where, and the line before and after."""

    module: str
    line: int
    before: str
    after: str


def main(arguments: Sequence[str]) -> int:
    """Run the command; gives its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description="Which small changes no test notices."
    )
    parser.add_argument("modules", nargs="*", help="of those in targets.py (default: all)")
    parser.add_argument("--sample", type=int, default=40, help="changes tried of each module (default: 40)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.modules) - TARGETS.keys())
    if unknown:
        parser.error(f"not in tests/mutation/targets.py: {', '.join(unknown)}")
    tried, survivors = 0, []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(_copied(Path(folder)))
        for module in options.modules or TARGETS:
            count, found = try_module(module, options.sample, options.seed)
            print(f"{module}: {len(found)} of {count} changes went unnoticed", flush=True)
            for each in found:
                print(f"  {each.module}:{each.line}\n    - {each.before}\n    + {each.after}", flush=True)
            tried += count
            survivors += found
    share = len(survivors) / tried if tried else 0.0
    print(f"{len(survivors)} of {tried} changes went unnoticed: {share:.1%}, {TOLERATED:.0%} are too many")
    return int(share >= TOLERATED)


def try_module(module: str, sample: int, seed: int) -> tuple[int, list[Survivor]]:
    """(how many changes were tried, those that went unnoticed) of one module, in the working directory.

    Raises:
        RuntimeError: the tests fail as the code is.
    """
    command = f"{sys.executable} -m pytest -n 0 -x -q -p no:cacheprovider -m 'not soak' {' '.join(TARGETS[module])}"
    if subprocess.run(shlex.split(command), capture_output=True, check=False).returncode:
        raise RuntimeError(f"without any change these tests fail: {command}")
    chosen = changes_of(module)
    random.Random(seed).shuffle(chosen)
    tried, survivors = 0, []
    for change in chosen[:sample]:
        result = mutate_and_test([change], command, TIMEOUT_S)
        if result.worker_outcome is not WorkerOutcome.NORMAL:
            continue
        before, after = _changed_lines(result.diff or "")
        if (module, after) in EQUIVALENT or before in TUNED.get(module, ()):
            continue
        tried += 1
        if result.test_outcome is TestOutcome.SURVIVED:
            survivors.append(Survivor(module, change.start_pos[0], before, after))
    return tried, survivors


def changes_of(module: str) -> list[MutationSpec]:
    """All changes of a module that could change what it does."""
    with (
        tempfile.TemporaryDirectory() as folder,
        use_db(Path(folder) / "session.sqlite", WorkDB.Mode.create) as session,
    ):
        init([Path(module)], session, {})
        all_changes = [mutation for item in session.work_items for mutation in item.mutations]
    text = Path(module).read_text(encoding="utf-8")
    dull = _dull_places(ast.parse(text))
    sensible = [c for c in all_changes if _is_sensible(c.operator_name)]
    return [c for c in sensible if not any(start <= c.start_pos < end for start, end in dull)]


def _is_sensible(operator: str) -> bool:
    """Whether people make such mistakes: an addition that subtracts, a bound that is off by one, but no `+` that is a `|`."""
    kind, _, change = operator.removeprefix("core/").partition("_")
    return kind not in ("ReplaceBinaryOperator", "ReplaceComparisonOperator") or change in _MISTAKES


Place = tuple[int, int]


def _dull_places(tree: ast.Module) -> list[tuple[Place, Place]]:
    """From where to where nothing runs, or only for people: annotations, decorators, calls of loggers, invariants, zip's `strict`."""
    nodes: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name="check_invariants"):
                nodes.append(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                variadic = [a for a in (node.args.vararg, node.args.kwarg) if a is not None]
                arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, *variadic)
                nodes += [a.annotation for a in arguments if a.annotation is not None]
                nodes += [n for n in (node.returns, *node.decorator_list) if n is not None]
            case ast.ClassDef():
                nodes += node.decorator_list
            case ast.AnnAssign():
                nodes.append(node.annotation)
            case ast.keyword(arg="strict"):
                nodes.append(node.value)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="_log"))):
                nodes.append(node)
    return [_span(node) for node in nodes]


def _span(node: ast.AST) -> tuple[Place, Place]:
    first, last = (getattr(node, name) for name in ("lineno", "end_lineno"))
    return (first, getattr(node, "col_offset")), (last, getattr(node, "end_col_offset"))  # noqa: B009


def _changed_lines(diff: str) -> tuple[str, str]:
    """The first line that a change takes away, and the first that it brings."""
    lines = diff.splitlines()[2:]
    before = next((line[1:].strip() for line in lines if line.startswith("-") and not line.startswith("---")), "")
    after = next((line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")), "")
    return before, after


def _copied(folder: Path) -> Path:
    """A copy of what git knows of the working tree, which may be changed; subprocesses of tests import it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    copy = folder / "flowrun"
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    os.environ["PYTHONPATH"] = str(copy)
    return copy


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
