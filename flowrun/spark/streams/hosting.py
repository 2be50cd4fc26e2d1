"""What a task of Spark does to host a task executor: starts its process, and waits until that ends.

The process is started, not forked: a Python worker of Spark has the threads of Arrow and a connection to its executor. Its orders, with the
secret in them, go through its standard input, which stays open: at its end the process knows that the worker is gone, and ends, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from flowrun.errors import ClusterError
from flowrun.runtime.cluster.job_files import users_cache
from flowrun.runtime.process import prepare_environment

REFUSES = 3
"""Exit code of a process that cannot be a task executor; the pipe of its reasons says why."""
MOST_REASON_BYTES = 4096
"""Which a pipe takes at once."""

Batches = Iterator[Any]
"""Arrow batches, as `DataFrame.mapInArrow` hands them to a function and takes them from it."""


def hosting(module: str, orders: bytes) -> Callable[[Batches], Batches]:
    """The function for a task of Spark: it takes and gives no rows, and returns when the task executor's session is over.

    Args:
        module: what the process runs, as `python -m` does.
        orders: one line for its standard input.
    """

    def flowrun_task_executor(batches: Batches) -> Batches:
        for _ in batches:
            pass
        host(module, orders)
        yield from ()

    return flowrun_task_executor


def host(module: str, orders: bytes) -> None:
    """Run a task executor to the end of its session, in a process that ends with this one. Blocks.

    Raises:
        ClusterError: it refuses to work here, or it was killed.
    """
    read_end, write_end = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(write_end)],
            stdin=subprocess.PIPE,
            env=_environment(os.environ),
            pass_fds=(write_end,),
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    assert child.stdin is not None
    try:
        with suppress(BrokenPipeError):  # it has ended; how is said below
            child.stdin.write(orders + b"\n")
            child.stdin.flush()
        code = child.wait()
        if code == 0:
            return
        reason = os.read(read_end, MOST_REASON_BYTES).decode(errors="replace") if code == REFUSES else ""
    finally:
        child.kill()
        os.close(read_end)
        with suppress(BrokenPipeError):
            child.stdin.close()
        with suppress(ClusterError, OSError):  # the next one tries it, too
            users_cache().sweep()
    message, _, hint = reason.partition("\n")
    raise ClusterError(message or f"the process of the task executor {_how(code)}", hint=hint or None)


def worker_name(number: int, unique: str) -> str:
    """The name of a task executor in the cluster.

    >>> worker_name(3, "a1b2c3"), number_of("spark-3-a1b2c3")
    ('spark-3-a1b2c3', 3)
    """
    return f"spark-{number}-{unique}"


def number_of(name: str) -> int:
    """The number of the task executor of that name; 0 if it is no such name."""
    parts = name.split("-")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Of the process: it imports what this one can import, and has the settings of all processes that run subtasks."""
    prepared = {**variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    prepare_environment(prepared)
    return prepared


def _how(code: int) -> str:
    """How a process ended, from what `Popen.wait` gives.

    >>> _how(-9), _how(1)
    ('was killed by SIGKILL', 'ended with exit code 1')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
