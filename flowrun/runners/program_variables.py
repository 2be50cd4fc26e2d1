"""The values that a program finds in `env.variables`: of the command line, of its project, and of the process, in this order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline import parts_of_project
from flowrun.frontend.project_file import ENVIRONMENT
from flowrun.frontend.shared_parts import SharedParts
from flowrun.frontend.source_text import SourceText
from flowrun.state.checkpoints import ProjectText


class ProgramVariables(Mapping[str, str]):
    """Values of a program that is in a project. Those of the project are filled when they are asked for, as pipelines have it.

    Args:
        given: of the command line.
        shared: what the project gives.
    """

    def __init__(self, given: Mapping[str, str], shared: SharedParts) -> None:
        self._given = given
        self._shared = shared

    def __getitem__(self, name: str) -> str:
        """The value of a variable.

        Raises:
            KeyError: there is none of that name.
            PipelineError: the project's value of it refers to something that is not there.
        """
        if name in self._given:
            return self._given[name]
        if name not in self._shared.variables:
            return os.environ[name]
        diagnostics = Diagnostics(self._shared.source)
        found = self._shared.values(self._given, os.environ, set())[name](diagnostics)
        diagnostics.raise_if_errors()
        assert found is not None
        return found.text

    def __contains__(self, name: object) -> bool:
        return name in self._given or name in self._shared.variables or name in os.environ

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(os.environ), **self._shared.variables, **self._given})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        """Functions of the program that keep the variables take them along as they are now."""
        return dict, (dict(self),)


def shared_of_program(path: Path, overrides: Mapping[str, str], project: ProjectText | None) -> SharedParts | None:
    """What the project of a program gives in the environment that the command line names; None: it is in none.

    Raises:
        PipelineError: the project has errors, or there is no such environment, or no project.
    """
    diagnostics = Diagnostics(SourceText(str(path), ""))
    return parts_of_project(project, overrides.get(ENVIRONMENT), path.parent, diagnostics)


def program_variables(given: Mapping[str, str], shared: SharedParts | None) -> Mapping[str, str]:
    """The values that a program finds. Arguments as of `ProgramVariables`; `shared` is None if it is in no project."""
    return {**os.environ, **given} if shared is None else ProgramVariables(given, shared)
