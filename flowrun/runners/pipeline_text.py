"""The text of a pipeline as it is kept in checkpoints, and what is taken from there again.

Kept is what the user wrote, before anything is filled in: `${secret:…}` and environment variables are looked up anew on resumption. Values
given on the command line are kept as well, unless they are secret or end up in a secret option: then only a name is kept, and who resumes
gives the value again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from flowrun.errors import Diagnostic, PipelineError
from flowrun.frontend.pipeline import LoadedPipeline
from flowrun.masking import holds_secret, is_secret, learn_secret
from flowrun.plan.nodes import Plan, Scan, Sink, TableReference, walk_plan
from flowrun.state.checkpoints import PipelineText, ProjectText


def text_to_keep(
    path: Path,
    loaded: LoadedPipeline,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    folder: Path | None = None,
) -> PipelineText:
    """What checkpoints of a pipeline keep of its text and of the command line.

    Args:
        path: the pipeline's file.
        loaded: its plan, and what catalogs said of its tables.
        variables: given with `--var`.
        overrides: given with `--set` and the like.
        folder: where relative paths of functions start; None: that of the file.
    """
    plan = loaded.plan
    secrets = [s for table in _tables(plan) for s in _secrets(table)]
    withheld = {
        name for name, value in variables.items() if value and (is_secret(value) or any(value in s for s in secrets))
    }
    kept_overrides: dict[str, str] = {}
    for key, value in overrides.items():
        if holds_secret(value) or (
            key.startswith(("sources.", "sinks.", "tables.")) and any(s in value for s in secrets)
        ):
            name = _variable_instead(key)
            withheld.add(name)
            kept_overrides[key] = f"${{{name}}}"
        else:
            kept_overrides[key] = value
    if plan.settings.auto_parallelism:  # other machines, and later runs, have other cores
        kept_overrides["settings.parallelism"] = str(plan.settings.parallelism)
    return PipelineText(
        file_name=str(path),
        text=plan.text,
        directory=str((path.parent if folder is None else folder).absolute()),
        variables={name: value for name, value in variables.items() if name not in withheld},
        overrides=kept_overrides,
        working_directory=os.getcwd(),
        withheld=tuple(sorted(withheld)),
        catalog_tables=loaded.catalog_tables,
        project=loaded.project,
    )


def withheld_values(kept: PipelineText, variables: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """The values of what `kept.withheld` names, from the command line that the text was kept of."""
    values = {name: variables[name] for name in kept.withheld if name in variables}
    for key, value in overrides.items():
        if kept.overrides.get(key) == f"${{{_variable_instead(key)}}}":
            values[_variable_instead(key)] = value
    return values


def program_text_to_keep(
    path: Path, variables: Mapping[str, str], overrides: Mapping[str, str], project: ProjectText | None = None
) -> PipelineText:
    """What checkpoints of a program's job keep of the program, of the command line and of its project; see `text_to_keep`."""
    withheld = tuple(sorted(name for name, value in variables.items() if value and is_secret(value)))
    return PipelineText(
        file_name=str(path),
        text=path.read_text(encoding="utf-8", errors="replace"),
        directory=str(path.parent.absolute()),
        variables={name: value for name, value in variables.items() if name not in withheld},
        overrides=dict(overrides),
        working_directory=os.getcwd(),
        withheld=withheld,
        project=project,
    )


def check_withheld(kept: PipelineText, variables: Mapping[str, str]) -> None:
    """Raise PipelineError unless every value that was withheld is given again, and know these as secrets from now on."""
    problems = [
        Diagnostic(
            f"the variable '{name}' was not kept with the state, as its value is secret",
            hint=f"give it again: --secret-var {name}=…",
        )
        for name in kept.withheld
        if name not in variables
    ]
    if problems:
        raise PipelineError(problems)
    for name in kept.withheld:
        learn_secret(variables[name])


def lies_in(kept: PipelineText, folder: Path) -> bool:
    """Whether a kept pipeline, or its project, lies directly in a folder."""
    return folder == Path(kept.directory) or (kept.project is not None and folder == Path(kept.project.directory))


def function_folders(kept: PipelineText, folder: Path) -> tuple[Path, ...]:
    """Where the Python functions of a kept pipeline come from if its own are in `folder`: there, and in the folder of its project.

    That is looked for above `folder` only, or is `folder` itself: whoever can write state cannot name another one in it.
    """
    if kept.project is None:
        return (folder,)
    project, given = Path(kept.project.directory), folder.absolute()
    if given == project:
        below = Path(os.path.relpath(kept.directory, project))
        return (folder,) if ".." in below.parts else tuple(dict.fromkeys((given / below, given)))
    return (folder, project) if project in given.parents else (folder,)


def check_folders(kept: PipelineText) -> None:
    """Raise PipelineError unless the folders are there in which relative paths of a kept text start."""
    folders = {"folder of the pipeline": kept.directory, "working directory": kept.working_directory}
    problems = [
        Diagnostic(
            f"the {what} '{folder}', which the kept text of '{kept.file_name}' needs, is not there any more",
            hint="give the pipeline's file: flowrun resume --from-savepoint PATH FILE",
        )
        for what, folder in folders.items()
        if folder and not Path(folder).is_dir()
    ]
    if problems:
        raise PipelineError(problems)


def _variable_instead(key: str) -> str:
    """The variable whose value stands for a secret value of `--set`."""
    return re.sub(r"\W", "_", key).upper()


def _tables(plan: Plan) -> list[TableReference]:
    return [node.table for node in walk_plan(plan) if isinstance(node, Scan | Sink)]


def _secrets(table: TableReference) -> list[str]:
    return [str(table.options[k]) for k in table.secret_options if k in table.options and str(table.options[k])]
