"""Arguments of the commands that serve the REST API and its page."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from flowrun.cli.arguments import ViewOptions
from flowrun.cli.cluster_arguments import AddressType, is_given, is_rest_address
from flowrun.cli.console import say
from flowrun.errors import ClusterError

if TYPE_CHECKING:
    from flowrun.rest.doors import Door, DoorOptions
    from flowrun.runtime.rpc.address import Address

F = TypeVar("F", bound=Callable[..., Any])

REST_PORT = 8081
"""That of Flink's REST API and page."""

_TOKEN_FILE = click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="FLOWRUN_TOKEN_FILE",
    metavar="FILE",
    help="The token of the REST API; it is made if it is not there. Only its owner may read it. By default there is a new one each time.",
)
"""Of commands that serve it; `cluster_arguments.TOKEN_FILE` is of those that ask."""


def rest_options(command: F) -> F:
    """Add `--rest` and `--token-file`; the command finds them in its argument `view`. `view_options` stands above this one."""

    @functools.wraps(command)
    def with_door(
        *args: Any, rest_address: Address | None, token_file: Path | None, view: ViewOptions, **rest: Any
    ) -> Any:
        return command(*args, view=replace(view, rest=door_options(rest_address, token_file)), **rest)

    return cast(F, rest_address_option(with_door))


def rest_address_option(command: F) -> F:
    """Add `--rest` and `--token-file`; the command gets `rest_address` and `token_file`, for `door_options`."""
    address = click.option(
        "--rest",
        "rest_address",
        type=AddressType(REST_PORT),
        metavar="HOST:PORT",
        help="The page and the REST API listen there; by default at any free port of this machine, which `flowrun ui` tells. "
        "Beyond this machine it takes --token-file and --tls.",
    )
    return address(_TOKEN_FILE(command))


def door_options(address: Address | None, token_file: Path | None) -> DoorOptions | None:
    """Where the user wants the REST API of the present command to listen; None: nowhere in particular.

    Certificates count beyond this machine: a browser of this machine would only be in doubt about them.

    Raises:
        click.UsageError: strangers could come in.
    """
    if address is None:
        clusters = click.get_current_context().params.get("cluster_addresses", ())
        if is_given("token_file") and not any(map(is_rest_address, clusters)):
            raise click.UsageError("--token-file goes with --rest")
        return None
    from flowrun.rest.doors import DoorOptions

    tls: Path | None = click.get_current_context().params.get("tls")
    options = DoorOptions(address, token_file, None if address.is_of_this_machine else tls)
    try:
        options.check()
    except ClusterError as error:
        raise click.UsageError(f"{error.message}; {error.hint}") from None
    return options


def say_where(door: Door, what: str) -> None:
    """Tell the user the address of the page, with the token unless that is in a file of theirs."""
    if door.token_file is None:
        say(f"{what}: {door.url}#token={door.token}")
    else:
        say(f"{what}: {door.url} (the token is in {door.token_file})")
