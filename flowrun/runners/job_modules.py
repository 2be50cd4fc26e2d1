"""Which Python modules travel with a job: those beside the pipeline that it has imported, or may import while it runs.

Found are the modules that compiling has imported from the pipeline's folder, or from that of its project, the program itself, and, from
there on, whatever their text names in an `import` statement, also within functions. Of a package all modules travel, as it may import
them by names that are not in its text. So a script or a virtual environment that happens to lie beside the pipeline stays where it is.
What is no Python module, and what a symbolic link leads to outside of the folders, never travels.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from flowrun.errors import ClusterError, PipelineError
from flowrun.operators.function_loading import is_from
from flowrun.runners.compile import is_program
from flowrun.runners.pipeline_text import function_folders
from flowrun.runtime.cluster.job_files import MOST_BYTES, MOST_FILES, SUFFIX, JobFiles, job_files
from flowrun.state.checkpoints import PipelineText

_NEVER = frozenset({"__main__", "flowrun"})
"""Not the user's, even if the folder has them: all machines have the same version of flowrun."""
_IMPORTING = frozenset({"import_module", "__import__"})


def modules_of_job(text: PipelineText, functions_from: Path | None = None) -> JobFiles:
    """The modules of a job that this process has just compiled.

    Args:
        text: of the job.
        functions_from: the folder that they were imported from; None: that of the text.

    Raises:
        PipelineError: they are too many or too large, cannot be read, are compiled, or lie outside of the folder.
    """
    try:
        return _Modules(text, function_folders(text, functions_from or Path(text.directory))).collect()
    except ClusterError as error:
        raise PipelineError.of(error.message, error.hint) from error


class _Modules:
    """Gathers contents by path below the folder."""

    def __init__(self, text: PipelineText, folders: tuple[Path, ...]) -> None:
        self._given = folders
        self._folders = tuple(folder.resolve() for folder in folders)
        self._program = Path(text.file_name).name if is_program(text) else None
        self._contents: dict[str, bytes] = {}
        self._bytes = 0
        self._seen: set[str] = set()

    def collect(self) -> JobFiles:
        loaded = [name for name, module in self._loaded() if "." not in name]
        self._look_at(loaded)
        if self._program is not None:
            self._add(self._program, self._given[0] / self._program)
            self._look_at(_imported(self._contents[self._program]))
        self._check_loaded()
        return job_files(self._contents)

    @property
    def _places(self) -> list[str]:
        """The folders, as they are and as they were given."""
        return [str(folder) for folder in (*self._folders, *self._given)]

    def _loaded(self) -> Iterator[tuple[str, ModuleType]]:
        """Modules that were imported from the folder, and those below them."""
        for name, module in list(sys.modules.items()):
            top = sys.modules.get(name.partition(".")[0])
            if name.partition(".")[0] not in _NEVER and isinstance(top, ModuleType) and is_from(top, self._places):
                yield name, module

    def _look_at(self, names: Sequence[str]) -> None:
        """Add top-level modules and packages that are in the folder, and those that they name."""
        waiting = list(names)
        while waiting:
            top = waiting.pop()
            if top not in self._seen and self._is_users(top):
                self._seen.add(top)
                for path in self._add_top(top):
                    waiting += _imported(self._contents[path])

    def _is_users(self, top: str) -> bool:
        if top in _NEVER or top in sys.stdlib_module_names:
            return False
        loaded = sys.modules.get(top)
        return loaded is None or is_from(loaded, self._places)

    def _add_top(self, top: str) -> list[str]:
        """Add a module, or all modules of a package; gives their paths. Nothing if it is not in the folder."""
        for folder in self._folders:
            spec = importlib.machinery.PathFinder.find_spec(top, [str(folder)])
            if spec is not None:
                return self._add_found(top, spec, folder)
        return []

    def _add_found(self, top: str, spec: importlib.machinery.ModuleSpec, folder: Path) -> list[str]:
        if spec.submodule_search_locations is not None:
            return self._add_package(top, folder)
        if spec.origin is None or not spec.origin.endswith(SUFFIX):
            raise ClusterError(
                f"the module '{top}' beside the pipeline does not travel to other machines: {spec.origin} is compiled",
                hint=f"install it as a package on all machines, and name it: settings: {{functions: [{top}]}}",
            )
        path = f"{top}{SUFFIX}"
        self._add(path, Path(spec.origin))
        return [path]

    def _add_package(self, top: str, folder: Path) -> list[str]:
        added = []
        for place, folders, files in os.walk(folder / top):
            folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__pycache__")
            for name in sorted(files):
                file = Path(place) / name
                if name.endswith(SUFFIX) and not name.startswith(".") and self._is_inside(file):
                    path = file.relative_to(folder).as_posix()
                    self._add(path, file)
                    added.append(path)
        return added

    def _is_inside(self, file: Path) -> bool:
        return any(file.resolve().is_relative_to(folder) for folder in self._folders)

    def _add(self, path: str, file: Path) -> None:
        if path in self._contents:
            return
        if not self._is_inside(file) and path != self._program:  # the program is the file that the user named
            raise ClusterError(
                f"the module {path} does not travel to other machines: it is a link that leads out of {self._folders[0]}",
                hint="put a copy beside the pipeline, or install it as a package on all machines",
            )
        try:
            content = file.read_bytes()
        except OSError as error:
            raise ClusterError(f"the module {file} cannot be read: {error.strerror or error}") from error
        self._contents[path] = content
        self._bytes += len(content)
        if len(self._contents) > MOST_FILES or self._bytes > MOST_BYTES:
            job_files(self._contents)  # says so

    def _check_loaded(self) -> None:
        """Pass if every module that was imported from the folder travels."""
        for name, module in self._loaded():
            origin = getattr(module, "__file__", None)
            if origin is None:  # a package without `__init__`
                continue
            place = Path(origin)
            for folder in (*self._folders, *self._given):
                if place.is_relative_to(folder) and place.relative_to(folder).as_posix() in self._contents:
                    break
            else:
                raise ClusterError(
                    f"the module '{name}' does not travel to other machines: {origin} is no file of Python's in {self._folders[0]} itself",
                    hint="put a copy beside the pipeline, or install it as a package on all machines",
                )


def _imported(source: bytes) -> list[str]:
    """Top-level names of the modules that a module's text imports, wherever in it.

    >>> _imported(b"if a: import b.c, d; from e.f import g; from . import h; import_module('i')")
    ['b', 'd', 'e', 'i']
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # it was not imported yet, and says so when it is
        return []
    names: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names += [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module), level=0):
                names.append(module)
            case ast.Call(
                func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(module)), *_]
            ):
                if name in _IMPORTING:
                    names.append(module)
    return [name.partition(".")[0] for name in names]
