"""Checks master URLs and Connect URLs, and whether a server answers there; tells how many cores a local master has."""

from __future__ import annotations

import os
import re
import socket

from flowrun.errors import OptionError, SetupError

LOCAL = re.compile(r"local(\[(?P<threads>\*|[1-9]\d*)(,\s*\d+)?\])?")
LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(?P<workers>[1-9]\d*)\s*,\s*(?P<cores>[1-9]\d*)\s*,\s*\d+\s*\]")
_ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^:/,;]+)(:(?P<port>\d+))?")
_KNOWN_SCHEMES = ("spark", "k8s")
_KNOWN = "local[N], local[*], local-cluster[WORKERS,CORES,MB], spark://HOST:PORT, yarn or k8s://HOST:PORT"
_CONNECT_PORT, _MASTER_PORT = 15002, 7077
_ANSWER_S = 5.0


def check_master(master: str) -> None:
    """Check the URL of a master.

    Raises:
        OptionError: it is no such URL.
        SetupError: it names a server that does not answer.
    """
    if LOCAL.fullmatch(master) or LOCAL_CLUSTER.fullmatch(master) or master == "yarn":
        return
    scheme, separator, rest = master.partition("://")
    if not separator or scheme not in _KNOWN_SCHEMES or not rest:
        hint = f"one of {_KNOWN}"
        if scheme == "sc":
            hint = f"a Connect URL goes to --spark-remote; a master is {hint}"
        raise OptionError("--spark-master", f"'{master}' is no Spark master", hint=hint)
    if scheme == "spark":
        servers = rest.split(",")
        problems = [_unanswered(server, _MASTER_PORT) for server in servers]
        if all(problems):
            raise SetupError(
                f"no Spark master answers at {master}: {problems[0]}", hint="start it, or check the address"
            )


def check_remote(url: str) -> None:
    """Check a Connect URL.

    Raises:
        OptionError: it is no such URL.
        SetupError: no server answers there.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme != "sc" or not rest:
        raise OptionError("--spark-remote", f"'{url}' is no Spark Connect URL", hint="sc://HOST:PORT")
    server = re.split(r"[/;]", rest, maxsplit=1)[0]
    if problem := _unanswered(server, _CONNECT_PORT):
        raise SetupError(f"no Spark Connect server answers at {url}: {problem}", hint="start it, or check the address")


def is_local(master: str) -> bool:
    """Whether everything runs on this machine.

    >>> is_local("local[2]"), is_local("local-cluster[2,1,1024]"), is_local("yarn")
    (True, True, False)
    """
    return LOCAL.fullmatch(master) is not None or LOCAL_CLUSTER.fullmatch(master) is not None


def local_cores(master: str) -> int:
    """How many tasks a local master runs at a time.

    >>> local_cores("local[3]"), local_cores("local-cluster[2,2,1024]"), local_cores("local")
    (3, 4, 1)
    """
    if found := LOCAL_CLUSTER.fullmatch(master):
        return int(found["workers"]) * int(found["cores"])
    found = LOCAL.fullmatch(master)
    threads = None if found is None else found["threads"]
    return (os.cpu_count() or 1) if threads == "*" else int(threads or 1)


def _unanswered(server: str, default_port: int) -> str | None:
    """Why no server can be reached at `host:port`; None: one answers."""
    found = _ADDRESS.fullmatch(server.strip())
    if found is None:
        return f"'{server}' is no address"
    try:
        socket.create_connection((found["host"].strip("[]"), int(found["port"] or default_port)), _ANSWER_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
