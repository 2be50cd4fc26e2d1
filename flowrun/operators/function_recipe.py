"""How tasks get the Python functions of users: by name from a module, or by value."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Mapping
from dataclasses import field, replace
from types import CodeType, FunctionType
from typing import Any

from flowrun.core.record import record
from flowrun.errors import PipelineError
from flowrun.operators.function_loading import describe, load_attribute, load_function


@record
class FunctionRecipe:
    """How each subtask gets a function of its own.

    Attributes:
        reference: `module:name` of a function or class; how messages name the function.
        arguments: of the class, by name.
        search_path: folders to import from before Python's own path.
        pickled: instead of all that: the function itself.
    """

    reference: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    search_path: tuple[str, ...] = ()
    pickled: bytes | None = None

    @classmethod
    def of(cls, function: object) -> FunctionRecipe:
        """The recipe that copies an object, e.g. a process function: each subtask gets a copy of it as it is now.

        Raises:
            PipelineError: it cannot be pickled.
        """
        kind = type(function)
        return cls(f"{kind.__module__}:{kind.__qualname__}", pickled=_pickled(function, kind.__qualname__))

    @classmethod
    def of_code(cls, function: Any) -> FunctionRecipe:
        """The recipe of a function or class: by its name in a module that can be imported, else by value.

        Functions and classes of the program itself (`__main__`), lambdas, and what is defined in another function go by value: each
        subtask has a copy of them, and of the variables that they use as they are now. A function by name shares its module's variables
        with all others in the process.

        Raises:
            PipelineError: it cannot be pickled.

        >>> FunctionRecipe.of_code(len), FunctionRecipe.of_code(lambda row: row["n"] + 1).load_function()({"n": 1})
        (FunctionRecipe(reference='builtins:len', arguments={}, search_path=(), pickled=None), 2)
        """
        module = getattr(function, "__module__", None) or "__main__"
        name = getattr(function, "__qualname__", None)
        if name is None:
            return cls.of(function)
        if module != "__main__" and _is_found(function, module, name):
            return cls(f"{module}:{name}")
        return cls(f"{module}:{name}", pickled=_pickled(function, name))

    def load(self) -> Any:
        """What the recipe names, or a copy of what was pickled.

        Raises:
            PipelineError: it cannot be found, or what it needs cannot be imported here.
        """
        if self.pickled is None:
            return load_attribute(self.reference, self.search_path)
        try:
            loaded, file = pickle.loads(self.pickled)
        except Exception as error:
            raise PipelineError.of(
                f"'{self.reference}' was sent to a task, which cannot load it: {describe(error)}",
                "install the modules that it uses wherever tasks run",
            ) from error
        if file is not None:
            for function in (loaded, *(vars(loaded).values() if isinstance(loaded, type) else ())):
                if isinstance(function, FunctionType):
                    function.__code__ = _from_file(function.__code__, file)
        return loaded

    def instance(self) -> Any:
        """What the recipe stands for, or an instance of it if it is a class. Raises PipelineError as `load`."""
        loaded = self.load()
        return loaded(**self.arguments) if isinstance(loaded, type) else loaded

    def load_function(self, *, context: bool = False) -> Any:
        """Something that can be called with one argument, or, with `context`, maybe with a second one of that name.

        Raises PipelineError as `function_loading.load_function`.
        """
        if self.pickled is None:
            return load_function(self.reference, self.search_path, context=context)
        return self.load()


def class_recipe(function: Any, base: type, arguments: Mapping[str, object], place: str) -> FunctionRecipe:
    """How tasks get an instance of a class: given as one, as its class, or as `module:Class`.

    Raises:
        PipelineError: it is none of these, or cannot be sent to tasks; `place` begins the message.
    """
    if isinstance(function, str):
        return FunctionRecipe(function, dict(arguments))
    if isinstance(function, type):
        return replace(FunctionRecipe.of_code(function), arguments=dict(arguments))
    if not isinstance(function, base):
        raise PipelineError.of(
            f"{place}: {function!r} is of type {type(function).__name__}",
            f"give an instance of a class that extends {base.__module__}.{base.__qualname__}, its class, or 'module:Class'",
        )
    if arguments:
        raise PipelineError.of(f"{place}: an instance was given together with arguments", "give its class instead")
    return FunctionRecipe.of(function)


def _is_found(function: object, module: str, name: str) -> bool:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is function


def _file_of(value: object) -> str | None:
    """Where a function or class is defined. Code that goes by value forgets it, and errors are to name it."""
    if isinstance(value, type):
        return getattr(sys.modules.get(value.__module__), "__file__", None)
    return value.__code__.co_filename if isinstance(value, FunctionType) else None


def _from_file(code: CodeType, file: str) -> CodeType:
    """The code, and that of the functions in it, as code of a file."""
    constants = tuple(_from_file(c, file) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=file, co_consts=constants)


def _pickled(value: object, name: str) -> bytes:
    import cloudpickle  # here, as only programs in Python need it

    try:
        return bytes(cloudpickle.dumps((value, _file_of(value))))
    except Exception as error:
        raise PipelineError.of(
            f"'{name}' cannot be sent to tasks: {describe(error)}",
            "let it use nothing that cannot be pickled, such as open files, locks and connections: acquire these in open()",
        ) from error
