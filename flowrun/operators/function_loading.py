"""Users' Python functions: from `module:name` to something that can be called, with errors that say what to do."""

from __future__ import annotations

import importlib
import importlib.machinery
import inspect
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from flowrun.core.optional_pandas import allow_pandas
from flowrun.errors import PipelineError, did_you_mean
from flowrun.operators.callable_functions import NOT_ASYNC, is_asynchronous

_OF_LIBRARIES = (".pyx", ".pxi")
"""Ends of the names of files that compiled libraries were made of."""
_import_lock = threading.RLock()
_loaded_from_search_path: set[str] = set()
"""Top-level modules that came from some pipeline's search path."""
_imported: set[str] = set()
"""Modules that were imported for users' functions."""
_read_at: dict[str, int] = {}
"""Files of modules from search paths → when they had been changed last as they were read, in ns since 1970."""


def load_function(reference: str, search_path: Sequence[str] = (), *, context: bool = False) -> Any:
    """What `reference` (`module:name`, dots allowed on both sides) names: a function, or an instance if it names a class.

    The module is imported with `search_path` (folders) before Python's own path. Importing runs the user's code, which may raise
    anything. A module that an earlier pipeline loaded from another folder under the same name is loaded anew. Thread-safe.
    `context`: it may have a second parameter called `context`.

    Raises:
        PipelineError: the reference is malformed, the module or the attribute is missing, importing or instantiating failed,
            or the result cannot be called with one argument. The diagnostic has no location; the caller knows it.

    >>> load_function("math:sqrt")(9.0)
    3.0
    """
    target = load_attribute(reference, search_path)
    if inspect.isclass(target):
        target = _instantiate(target, reference)
    if not callable(target):
        raise PipelineError.of(
            f"'{reference}' is {_article(type(target).__name__)}, not a function",
            "name a function, a class whose instances can be called, or an object with __call__",
        )
    if is_asynchronous(target):
        raise PipelineError.of(f"'{reference}' is asynchronous, and nothing waits for what it gives", NOT_ASYNC)
    _check_signature(target, reference, context=context)
    return target


def load_attribute(reference: str, search_path: Sequence[str] = ()) -> Any:
    """What `reference` (`module:name`) names, whatever it is; see `load_function`.

    Raises:
        PipelineError: the reference is malformed, the module or the attribute is missing, or importing failed.
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute or not all(p.isidentifier() for p in f"{module_name}.{attribute}".split(".")):
        raise PipelineError.of(
            f"'{reference}' is not a reference to a function", "write module:function, e.g. my_functions:clean"
        )
    with _import_lock:
        target: Any = _import(module_name, reference, search_path)
    for part in attribute.split("."):
        if not hasattr(target, part):
            public = [n for n in dir(target) if not n.startswith("_")]
            raise PipelineError.of(f"'{reference}': {_name(target)} has no '{part}'", did_you_mean(part, public))
        target = getattr(target, part)
    return target


def has_imported() -> bool:
    """Whether this process has imported modules for users' functions, which may have started threads and taken locks."""
    return bool(_imported)


def _import(module_name: str, reference: str, search_path: Sequence[str]) -> ModuleType:
    folders = [str(folder) for folder in search_path]
    _look_into_folders_again()
    _forget_other_origins(folders)
    allow_pandas()
    _imported.add(module_name)
    saved, before = list(sys.path), set(sys.modules)
    sys.path[:0] = folders
    # Byte code is valid as long as its file has the same size and second of change: who corrects a digit at once would get the old one.
    writes_no_byte_code, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            looked = ", ".join(folders) or "Python's path"
            raise PipelineError.of(
                f"'{reference}': there is no module '{missing}' (looked in {looked})",
                "put the file beside the pipeline, or install the package that has it",
            ) from error
        raise PipelineError.of(
            f"'{reference}': importing {module_name} needs the module '{missing}', which is not installed{where(error)}",
            f"install it, e.g. pip install {missing.partition('.')[0]}",
        ) from error
    except (Exception, SystemExit) as error:
        raise PipelineError.of(
            f"'{reference}': importing {module_name} failed: {describe(error)}{where(error)}",
            "correct this line"
            if isinstance(error, SyntaxError)
            else f"a module of functions must import without side effects; test it with: python -c 'import {module_name}'",
        ) from error
    finally:
        sys.dont_write_bytecode = writes_no_byte_code
        sys.path[:] = saved
        _loaded_from_search_path.update(
            name for name in sys.modules.keys() - before if "." not in name and is_from(sys.modules[name], folders)
        )
        for name in sys.modules.keys() - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and name.partition(".")[0] in _loaded_from_search_path:
                _read_at[file] = _changed_at(file)


@contextmanager
def modules_of_its_own(folder: Path) -> Iterator[None]:
    """Within, modules may be imported from a folder; afterwards they are forgotten, so that another folder may have some of their names."""
    before = set(sys.modules)
    try:
        yield
    finally:
        with _import_lock:
            for name in sorted(sys.modules.keys() - before):
                if "." not in name and name in sys.modules and is_from(sys.modules[name], [str(folder.absolute())]):
                    _drop(name)


def _changed_at(file: str) -> int:
    """0: the file is not there."""
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


def forget_changed_modules() -> None:
    """Drop the modules of pipelines' folders if a file of them has changed since, so that they are imported anew."""
    with _import_lock:
        if all(_changed_at(file) == read for file, read in _read_at.items()):
            return
        _read_at.clear()
        for top in _loaded_from_search_path:
            _drop(top)


def _look_into_folders_again() -> None:
    """Find files that are younger than what Python knows of their folders.

    Archives on its path stay as they are known: `importlib.invalidate_caches` reads them anew, which takes longer than many a task
    of Spark, whose workers have PySpark in one.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if finder is None:
            del sys.path_importer_cache[path]
        elif isinstance(finder, importlib.machinery.FileFinder):
            finder.invalidate_caches()


def is_from(module: ModuleType, folders: Sequence[str]) -> bool:
    """Whether a top-level module or package lies directly in one of the folders."""
    places = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None) or ""]
    parents = {Path(place).parent for place in places if place}
    return any(Path(folder) in parents for folder in folders)


def taken_by(top: str, folders: Sequence[str]) -> str | None:
    """The file (or `built in`) of a loaded module of this name that is not from the folders and stays loaded; None: there is none."""
    loaded = sys.modules.get(top)
    if loaded is None or top in _loaded_from_search_path or is_from(loaded, folders):
        return None
    return getattr(loaded, "__file__", None) or "built in"


def _forget_other_origins(folders: list[str]) -> None:
    """Drop modules that another pipeline's folder provided, if these folders provide others of the same names."""
    for top in sorted(_loaded_from_search_path):
        if top not in sys.modules:
            continue
        spec = importlib.machinery.PathFinder.find_spec(top, folders)
        if spec is not None and not is_from(sys.modules[top], folders):
            _drop(top)


def _drop(top: str) -> None:
    for name in [n for n in sys.modules if n == top or n.startswith(f"{top}.")]:
        del sys.modules[name]


def _instantiate(kind: type, reference: str) -> object:
    try:
        return kind()
    except Exception as error:
        raise PipelineError.of(
            f"'{reference}': {kind.__name__}() failed: {describe(error)}{where(error)}",
            "a class used as a function is instantiated without arguments; acquire resources in open()",
        ) from error


def takes_context(function: Callable[..., Any]) -> bool:
    """Whether a function has a second parameter called `context`.

    >>> takes_context(lambda row, context: row), takes_context(lambda row, other=None: row), takes_context(len)
    (True, False, False)
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # built-in functions may have none
        return False
    return (
        len(parameters) > 1 and parameters[1].name == "context" and parameters[1].kind is not parameters[1].KEYWORD_ONLY
    )


def _check_signature(function: Callable[..., Any], reference: str, *, context: bool) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-in functions may have none
        return
    try:
        signature.bind(*((None, None) if context and takes_context(function) else (None,)))
    except TypeError as error:
        raise PipelineError.of(
            f"'{reference}' has the signature {reference.partition(':')[2]}{signature}, but it is called with one argument ({error})",
            "take one argument: the batch, or the row if `row: true`",
        ) from error


def describe(error: BaseException) -> str:
    """`ValueError: what it says`."""
    return traceback.format_exception_only(error)[-1].strip()


def where(error: BaseException, skip: str = __file__) -> str:
    """` at file:line` of the user's code that failed: the innermost frame that is not of a library, of flowrun, nor of `skip`.

    If all are of libraries, it is the innermost one outside of Python's import system and of `skip`.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {error.filename}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    users = [f for f in frames if f.filename != skip]
    own = [f for f in users if not f.filename.startswith(_library_folders()) and not f.filename.endswith(_OF_LIBRARIES)]
    shown = (own or users)[-1:]
    return f" at {shown[0].filename}:{shown[0].lineno}" if shown else ""


@cache
def _library_folders() -> tuple[str, ...]:
    """Where files are that no user has written; `<` begins the names of those that are none."""
    installed = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return ("<", str(Path(__file__).parent.parent) + os.sep, *(folder + os.sep for folder in installed))


def _name(target: object) -> str:
    if isinstance(target, ModuleType):
        return f"module {target.__name__} ({getattr(target, '__file__', None) or 'built in'})"
    return getattr(target, "__qualname__", None) or _article(type(target).__name__)


def _article(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"
