"""Which Python functions a pipeline may name: those of modules beside it, and of packages that its settings name.

A reference is checked twice: before the import, since that runs the module's code, and behind it, since a module passes on whatever it
has imported itself. Modules count by the place of their file, not by their name.
"""

from __future__ import annotations

import importlib.machinery
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from flowrun.core.record import record
from flowrun.errors import PipelineError
from flowrun.operators.function_loading import is_from, load_attribute, taken_by

_SEPARATORS = re.compile(r"[\s,;]+")


@record
class FunctionScope:
    """Where the functions of a pipeline come from.

    Attributes:
        folders: of the pipeline; absolute. Modules and packages directly in one of them are its own.
        packages: others whose functions it may name, `company` or `company.functions`.
        refusal: why no function at all is imported, and what to do; None: there is no reason.
    """

    folders: tuple[str, ...]
    packages: tuple[str, ...] = ()
    refusal: tuple[str, str] | None = None

    def load(self, reference: str) -> Any:
        """What `reference` (`module:name`) names, imported from the pipeline's folder or a package of its settings.

        Raises:
            PipelineError: it names something else, which is not imported; or as `load_attribute`.
        """
        if self.refusal is not None:
            raise PipelineError.of(f"'{reference}': {self.refusal[0]}", self.refusal[1])
        module, _, attribute = reference.partition(":")
        if any(part.startswith("__") for part in attribute.split(".")):
            raise PipelineError.of(
                f"'{reference}': names that begin with '__' are Python's own", "name a function or class of yours"
            )
        if all(part.isidentifier() for part in module.split(".")):  # else `load_attribute` says what is wrong
            self._admit(reference, module)
        target = load_attribute(reference, self.folders)
        self._check_way(reference, module, attribute)
        origin = _defining_module(target)
        if origin is not None and not self._is_allowed(origin):
            raise PipelineError.of(
                f"'{reference}' is {origin}.{getattr(target, '__qualname__', attribute)}, which '{module}' only imports",
                f"wrap it in a function of your own, or allow its package: settings: {{functions: [{origin.partition('.')[0]}]}}",
            )
        return target

    def _admit(self, reference: str, module: str) -> None:
        """Refuse a module that is neither beside the pipeline nor in one of the packages; imports nothing."""
        top = module.partition(".")[0]
        if self._is_named(module) and not _is_pythons_own(top):
            return
        if importlib.machinery.PathFinder.find_spec(top, list(self.folders)) is None:
            raise self._foreign(reference, top)
        taken = taken_by(top, self.folders)
        if taken is not None:
            raise PipelineError.of(
                f"'{reference}': the module beside the pipeline cannot be imported, as '{top}' is the name of another one too ({taken})",
                "give the file another name",
            )

    def _foreign(self, reference: str, top: str) -> PipelineError:
        looked = ", ".join(self.folders)
        if _is_pythons_own(top):
            return PipelineError.of(
                f"'{reference}': '{top}' is a module of Python itself, and there is none beside the pipeline (looked in {looked})",
                "write a function of your own that calls it, in a module beside the pipeline",
            )
        if importlib.machinery.PathFinder.find_spec(top) is None and top not in sys.modules:
            return PipelineError.of(
                f"'{reference}': there is no module '{top}' (looked in {looked})",
                f"put the file beside the pipeline, or install its package and allow it: settings: {{functions: [{top}]}}",
            )
        return PipelineError.of(
            f"'{reference}': '{top}' is not beside the pipeline (looked in {looked}), and no package that its settings name",
            f"put the file beside the pipeline, or allow the package: settings: {{functions: [{top}]}}",
        )

    def _check_way(self, reference: str, module: str, attribute: str) -> None:
        """Refuse names that lead through a module of somebody else: `mine:os.system`."""
        target: Any = sys.modules[module]
        for part in attribute.split("."):
            if isinstance(target, ModuleType) and not self._is_allowed(target.__name__):
                raise PipelineError.of(
                    f"'{reference}' leads through the module '{target.__name__}', which '{module}' only imports",
                    "wrap it in a function of your own",
                )
            target = getattr(target, part)

    def _is_allowed(self, module: str) -> bool:
        top = module.partition(".")[0]
        if self._is_named(module) and not _is_pythons_own(top):
            return True
        loaded = sys.modules.get(top)
        return loaded is not None and is_from(loaded, self.folders)

    def _is_named(self, module: str) -> bool:
        return any(module == p or module.startswith(f"{p}.") for p in self.packages)


FunctionScopes: TypeAlias = Callable[[tuple[str, ...]], FunctionScope]
"""From the packages that a pipeline's settings name to the scope of its functions."""


def functions_beside(*folders: Path) -> FunctionScopes:
    """Functions of modules in the folders, the first before the others, and of the packages."""
    places = tuple(dict.fromkeys(str(folder.resolve()) for folder in folders))
    return lambda packages: FunctionScope(places, packages)


def no_functions(why: str, remedy: str) -> FunctionScopes:
    """No functions at all: whoever names one is told why, and what to do."""
    return lambda packages: FunctionScope((), packages, (why, remedy))


def listed_packages(texts: Iterable[str]) -> tuple[str, ...]:
    """The names in the texts of a setting, separated by commas, semicolons or spaces.

    >>> listed_packages(["a, b.c;d", "e"])
    ('a', 'b.c', 'd', 'e')
    """
    return tuple(name for text in texts for name in _SEPARATORS.split(text) if name)


def package_problem(name: str) -> str | None:
    """Why a name cannot be that of a package of functions; None: it can.

    >>> package_problem("company.functions"), package_problem("os")
    (None, "'os' is a module of Python itself")
    """
    if not all(part.isidentifier() for part in name.split(".")):
        return f"'{name}' is no name of a Python package"
    if _is_pythons_own(name.partition(".")[0]):
        return f"'{name}' is a module of Python itself"
    return None


def _is_pythons_own(top: str) -> bool:
    return top in sys.stdlib_module_names or top in sys.builtin_module_names or top == "__main__"


def _defining_module(target: Any) -> str | None:
    """The name of the module that defines a function or class; None: of an object, which is where it is found."""
    if not (inspect.isclass(target) or inspect.isroutine(target)):
        return None
    name = getattr(target, "__module__", None)
    return name if isinstance(name, str) else None
