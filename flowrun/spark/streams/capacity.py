"""How many tasks a Spark runs at a time, as far as its settings say."""

from __future__ import annotations

from collections.abc import Callable

from flowrun.spark.masters import is_local, local_cores

Setting = Callable[[str], str | None]
"""Gives the value of a setting of Spark, or None if it has none."""

_FIXED_EXECUTORS = {"yarn": 2, "k8s": 2}
"""Kind of a master → how many executors it has without `spark.executor.instances`."""


def task_capacity(setting: Setting) -> int | None:
    """How many tasks run at a time at most; None: the settings do not say.

    >>> task_capacity({"spark.master": "local-cluster[2,1,1024]"}.get)
    2
    >>> task_capacity({"spark.master": "yarn", "spark.executor.instances": "3", "spark.executor.cores": "4"}.get)
    12
    >>> task_capacity({"spark.master": "yarn", "spark.dynamicAllocation.enabled": "true"}.get) is None
    True
    >>> task_capacity({"spark.master": "spark://host:7077", "spark.cores.max": "9", "spark.task.cpus": "2"}.get)
    4
    """
    master = setting("spark.master") or ""
    task_cores = _number(setting, "spark.task.cpus") or 1
    if is_local(master):
        return max(1, local_cores(master) // task_cores)
    if master.startswith("spark:"):
        cores = _number(setting, "spark.cores.max")
        return None if cores is None else max(1, cores // task_cores)
    by_executor = max(1, (_number(setting, "spark.executor.cores") or 1) // task_cores)
    if (setting("spark.dynamicAllocation.enabled") or "").lower() == "true":
        executors = _number(setting, "spark.dynamicAllocation.maxExecutors")
    else:
        executors = _number(setting, "spark.executor.instances") or _FIXED_EXECUTORS.get(master.partition(":")[0])
    return None if executors is None else executors * by_executor


def _number(setting: Setting, name: str) -> int | None:
    value = (setting(name) or "").strip()
    return int(value) if value.isdigit() and int(value) < 1 << 31 else None
