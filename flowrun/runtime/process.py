"""Settings of the whole process that make allocations and conversions cheap. Called once by the command line.

Measured on two virtual cores, pyarrow 26, NumPy 2.4. Of `tune_process`: hashing and generating 64k-row batches is 4 to 5 times faster
with the first; with the second, handing a plain Python number to a kernel (`pc.equal(column, 0)`) takes 8 µs instead of 50. Of
`prepare_environment`, on Nexmark with a million events, CPU seconds of the whole process:

* Arrow's jemalloc instead of its mimalloc, which asks for huge pages and keeps more of what is freed: q0 1.4 instead of 1.9, q9 3.0
  instead of 3.9, q16 3.5 instead of 3.9, q18 2.1 instead of 2.5, q20 2.3 instead of 3.0; 10 to 20 % less memory;
* NumPy does not ask for huge pages, which the kernel must find and clear when the first byte of them is written: a join that remembers
  10 M rows then spends 20 to 60 ns a row in the kernel instead of 100 to 190;
* OpenBLAS's threads, which nothing here uses, spin 0.1 s before they sleep: everything takes 0.1 s less.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import MutableMapping

ALLOCATIONS_BETWEEN_COLLECTIONS = 50_000
"""Threshold of the garbage collector. With Python's own of 700 it runs 200 times while modules are imported, which is a tenth of the time
of a small run, and finds nothing.
"""

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BLOCK_BYTES = 64 << 20
_KEPT_FREE_BYTES = 256 << 20


def prepare_environment(variables: MutableMapping[str, str] = os.environ) -> None:
    """Choose how native libraries allocate and wait, where the user has not. To be called before pyarrow and NumPy are imported."""
    variables.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # as a power of two, in cycles; 4 is the least
    variables.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    if _runs_on_glibc():  # builds of pyarrow for other systems may lack jemalloc
        variables.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")


def _runs_on_glibc() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):
        return False


def tune_process() -> None:
    """Keep freed memory for the next batch, and spare pyarrow a search for a package that is not there."""
    _keep_freed_memory()
    _mark_absent("dateutil")


def _keep_freed_memory() -> None:
    """Have glibc reuse blocks up to 64 MiB instead of giving them back: NumPy's temporaries would fault in new pages each time."""
    if not sys.platform.startswith("linux"):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc; musl has none
        library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE_BYTES)


def _mark_absent(module: str) -> None:
    """Remember that an optional module is not installed: pyarrow imports `dateutil` whenever it infers a type, and each
    failed attempt searches the whole path.
    """
    if module not in sys.modules and importlib.util.find_spec(module) is None:
        sys.modules[module] = None  # type: ignore[assignment]
