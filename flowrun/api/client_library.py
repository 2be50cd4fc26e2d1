"""Client libraries: packages that a connector or format needs beside flowrun's own dependencies. Each belongs to an extra.

They are imported when they are first used: options can be listed, and pipelines checked and explained, where none is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from types import ModuleType

from flowrun.core.record import record
from flowrun.errors import SetupError

_importing = threading.RLock()
"""Subtasks are threads, and parts of one package that import each other must not be imported by two of them at a time."""


@record
class ClientLibrary:
    """What an extra installs.

    Attributes:
        extra: its name, `kafka`; empty for a package that is not flowrun's own: `install` then says how to get it.
        modules: what is imported of it, by full names; the first ones tell whether it is installed.
        install: the command that installs it, if no extra of flowrun does.
    """

    extra: str
    modules: tuple[str, ...]
    install: str = ""

    @property
    def command(self) -> str:
        """The command that installs it.

        >>> ClientLibrary("kafka", ("confluent_kafka",)).command
        "pip install 'flowrun-streaming[kafka]'"
        """
        return self.install or f"pip install 'flowrun-streaming[{self.extra}]'"

    @property
    def is_installed(self) -> bool:
        """Whether all its modules are found; none is imported."""
        return self.missing_module == ""

    @property
    def missing_module(self) -> str:
        """The first of its modules that is not found; empty: all are."""
        return next((m for m in self.modules if importlib.util.find_spec(m.partition(".")[0]) is None), "")

    def module(self, name: str, needed_by: str) -> ModuleType:
        """Import one of its modules.

        Args:
            name: full name of the module.
            needed_by: who needs it, for the message: `connector 'kafka'`.

        Raises:
            SetupError: it is not installed, or cannot be imported on this machine.
        """
        try:
            with _importing:
                return importlib.import_module(name)
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError) and not self.is_installed:
                raise self.missing(name, needed_by) from error
            raise SetupError(
                f"{_needs(name, needed_by)}, which cannot be imported: {error}", hint=self.command
            ) from error

    def missing(self, name: str, needed_by: str) -> SetupError:
        """What to say where it is not installed; the arguments are those of `module`."""
        return SetupError(f"{_needs(name, needed_by)}, which is not installed", hint=self.command)


def _needs(name: str, needed_by: str) -> str:
    return f"{needed_by} needs the Python package {name.partition('.')[0]}"
