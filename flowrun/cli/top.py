"""`flowrun top`: all running jobs, refreshed in place."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import asdict

import click

from flowrun.cli.cluster_arguments import ClusterOptions, cluster_options
from flowrun.cli.guarded_streams import own_screen_allowed
from flowrun.cli.job_looks import JobLooks, LookedAt, looked_at
from flowrun.cli.views.job_look import ASKED, JobLook
from flowrun.core.clock import SystemClock
from flowrun.errors import FlowrunError
from flowrun.masking import masked_json

_LOOK_AGAIN_S = 0.2
"""How often the size of the terminal is looked at."""
_PLAIN_WIDTH = 200
"""Columns where standard output is no terminal: nothing is left out."""


@click.command()
@click.option(
    "-d",
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@click.option("--once", is_flag=True, help="Print the table after two looks, and end; so it is where no terminal is.")
@click.option("--json", "as_json", is_flag=True, help="As --once, as JSON with everything that is known.")
@cluster_options
def top(interval: float, once: bool, as_json: bool, cluster: ClusterOptions | None) -> None:
    """Show how all your running jobs of this machine, or those of a cluster, do: rate, lag, load, state, checkpoints.

    Keys: s sorts by the next column (S: the one before), r turns the order round, n sorts by name, q ends.
    """
    with looked_at(cluster) as place, closing(JobLooks(place, SystemClock())) as looks:
        if once or as_json or not sys.stdout.isatty():
            _print_once(_twice(looks, interval), as_json=as_json)
        else:
            _refresh(looks, place, interval)


def _twice(looks: JobLooks, interval: float) -> list[JobLook]:
    """The second look, which knows rates; a job that does not answer is waited for, but not for ever."""
    if not _settled(looks):
        return []
    import time

    time.sleep(interval)
    return _settled(looks)


def _settled(looks: JobLooks) -> list[JobLook]:
    found = looks.look()
    while any(job.state == ASKED for job in found):
        found = looks.look()
    return found


def _print_once(jobs: list[JobLook], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(masked_json([asdict(job) for job in jobs]), indent=2))
        return
    if not jobs:
        click.echo("no job runs")
        return
    from rich.console import Console

    from flowrun.cli.views.top_table import Sorting, top_table

    console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    console.print(top_table(jobs, Sorting("name", ascending=True), width=console.width))


def _refresh(looks: JobLooks, place: LookedAt, interval: float) -> None:
    """Show the jobs on the terminal until the user ends it."""
    from rich.console import Console
    from rich.live import Live

    from flowrun.cli.views.keyboard import Keyboard
    from flowrun.cli.views.top_table import Sorting, next_sorting, top_screen

    console, clock, sorting = Console(), SystemClock(), Sorting()
    jobs: list[JobLook] = []
    failure: str | None = None
    next_ns, drawn = 0, None
    with own_screen_allowed(), Keyboard() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if clock.monotonic_ns() >= next_ns:
                try:
                    jobs, failure = looks.look(), None
                except FlowrunError as error:  # the cluster may come back
                    failure = error.message
                next_ns, drawn = clock.monotonic_ns() + int(interval * 1e9), None
            size = console.size
            if drawn != (size, sorting):
                drawn = (size, sorting)
                screen = top_screen(
                    jobs, sorting, where=place.where, now_ms=clock.now_ms(), width=size.width, height=size.height, failure=failure
                )  # fmt: skip
                live.update(screen, refresh=True)
            left_s = max((next_ns - clock.monotonic_ns()) / 1e9, 0)
            key = keyboard.wait(min(left_s, _LOOK_AGAIN_S))
            if key in ("q", "Q"):
                return
            if key == " ":
                next_ns = 0
            sorting = next_sorting(sorting, key)
