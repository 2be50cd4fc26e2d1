"""Arguments of commands that run on Spark."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from flowrun.cli.arguments import parse_assignments
from flowrun.core.record import record
from flowrun.masking import learn_secret

if TYPE_CHECKING:
    from flowrun.spark.session import SparkOptions

F = TypeVar("F", bound=Callable[..., Any])

_SECRET_KEY = re.compile("secret|password|token|credential|access.?key", re.IGNORECASE)
"""Settings of Spark whose values are never shown."""
_LOG_LEVELS = {"debug": "INFO", "info": "WARN", "warning": "OFF", "error": "OFF"}
"""Level of flowrun's log → level of Spark's, which is quieter: Spark warns of much that does not concern users."""


@record
class SparkArguments:
    """The options that say where Spark runs, as the user gave them.

    Attributes:
        master: the value of `--spark-master`.
        remote: the value of `--spark-remote`.
        conf: the values of `--conf`, each of the form K=V.
    """

    master: str | None
    remote: str | None
    conf: tuple[str, ...]

    @property
    def are_given(self) -> bool:
        """Whether any of them was given."""
        return bool(self.master or self.remote or self.conf)

    def options(self, log_level: str = "warning", parallelism: int | None = None) -> SparkOptions:
        """The options of a session.

        Args:
            log_level: the level of flowrun's log.
            parallelism: how many tasks run at a time, if nothing else says where Spark runs.

        Raises:
            click.BadParameter: a value of `--conf` is not of the form K=V.
        """
        from flowrun.spark.session import SparkOptions

        conf = parse_assignments(self.conf, "--conf")
        for key, value in conf.items():
            if _SECRET_KEY.search(key):
                learn_secret(value)
        master = self.master
        if master is None and self.remote is None and parallelism is not None and "spark.master" not in conf:
            master = f"local[{parallelism}]"
        return SparkOptions(master, self.remote, conf, _LOG_LEVELS[log_level])


def spark_arguments(command: F) -> F:
    """Add --spark-master, --spark-remote and --conf; the command gets them as one argument `spark` (a `SparkArguments`)."""

    @functools.wraps(command)
    def with_spark(
        *args: Any, spark_master: str | None, spark_remote: str | None, conf: tuple[str, ...], **rest: Any
    ) -> Any:
        return command(*args, spark=SparkArguments(spark_master, spark_remote, conf), **rest)

    decorated: Any = with_spark
    for decorate in (
        click.option("--conf", multiple=True, metavar="K=V", help="A setting of Spark."),
        click.option("--spark-remote", metavar="URL", help="Spark Connect server to run on: sc://HOST:PORT."),
        click.option(
            "--spark-master", metavar="URL", help="Where Spark runs; by default local[*], all cores of this machine."
        ),
    ):
        decorated = decorate(decorated)
    return cast("F", decorated)
