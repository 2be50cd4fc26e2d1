"""Builds the reader of JSON that is written in C, with the C compiler of this machine.

Installing flowrun does this (hatch_build.py), and so does `make native` in a clone. It needs nothing but the standard library, and no
header of Python: the result is loaded by `ctypes`, and does for every version of Python.
"""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "json_columns.c"
LIBRARY = FOLDER / "json_columns.so"
_FLAGS = ("-O3", "-std=c11", "-D_GNU_SOURCE", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")


class NotBuiltError(Exception):
    """The library cannot be built here; the message says why."""


def sources_number() -> int:
    """A number (31 bits) that changes with the sources. The library holds that of the sources that it was built from."""
    number = 0
    for file in sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.h")]):
        number = zlib.crc32(file.read_bytes(), number)
    return number & 0x7FFFFFFF


def compiler() -> list[str]:
    """The command of the C compiler: that of the environment variable CC, or `cc`."""
    import shlex

    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def build(library: Path = LIBRARY, *, flags: tuple[str, ...] = ()) -> None:
    """Build the library.

    Args:
        library: the file to write. It is complete whenever it is there.
        flags: more flags for the compiler.

    Raises:
        NotBuiltError: there is no compiler, or it fails.
    """
    import subprocess  # not above: readers of JSON import this module for the place of the library
    import sysconfig

    if os.name != "posix":
        raise NotBuiltError(f"it is built on Linux and macOS, not on {sysconfig.get_platform()}")
    new = library.with_suffix(f".{os.getpid()}.tmp")
    number = f"-DFLOWRUN_SOURCES={sources_number()}"
    command = [*compiler(), *_FLAGS, *flags, number, "-o", str(new), str(SOURCE)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
        new.replace(library)
    except FileNotFoundError:
        raise NotBuiltError(f"there is no C compiler ({command[0]})") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip() or f"exit code {error.returncode}"
        raise NotBuiltError(f"the C compiler ({command[0]}) failed: {said}") from None
    finally:
        new.unlink(missing_ok=True)


def main() -> int:
    """Build it, and say how that went."""
    try:
        build()
    except NotBuiltError as error:
        sys.stderr.write(f"the compiled reader of JSON is not built: {error}\n")
        return 1
    sys.stderr.write(f"built {LIBRARY}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
