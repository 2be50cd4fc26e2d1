"""Settings of the process: what the user has set stays."""

import subprocess
import sys

import pytest

from flowrun.runtime.process import prepare_environment


def test_native_libraries_are_told_how_to_allocate_and_wait() -> None:
    variables: dict[str, str] = {}
    prepare_environment(variables)
    assert variables["OPENBLAS_THREAD_TIMEOUT"] == "4"
    assert variables["NUMPY_MADVISE_HUGEPAGE"] == "0"


def test_what_the_user_chose_stays() -> None:
    chosen = {"NUMPY_MADVISE_HUGEPAGE": "1", "OPENBLAS_THREAD_TIMEOUT": "10", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    variables = dict(chosen)
    prepare_environment(variables)
    assert variables == chosen


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only builds for Linux are known to have jemalloc")
def test_arrow_takes_the_pool_that_is_chosen_before_it_is_imported() -> None:
    program = "; ".join(
        [
            "import os",
            "os.environ.pop('ARROW_DEFAULT_MEMORY_POOL', None)",
            "from flowrun.runtime.process import prepare_environment",
            "prepare_environment()",
            "import pyarrow",
            "print(os.environ.get('ARROW_DEFAULT_MEMORY_POOL'), pyarrow.default_memory_pool().backend_name)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    chosen, used = done.stdout.split()
    assert chosen in ("None", used), f"asked for {chosen}, got {used}"
