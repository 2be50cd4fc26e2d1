"""Arguments of the commands that make a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flowrun.errors import ClusterError
from flowrun.runtime.rpc.address import Address, parse_address

DEFAULT_PORT = 6123
DEFAULT_SECRET = "~/.flowrun/cluster.secret"


class AddressType(click.ParamType[Address]):
    """`HOST:PORT`, with `tcp://` or without, or `unix:///PATH`; the port may be left out."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """The address.

        Raises:
            click.BadParameter: it is none.
        """
        if not isinstance(value, str):
            address: Address = value
            return address
        try:
            return parse_address(value, DEFAULT_PORT)
        except ClusterError as error:
            self.fail(f"{error.message}; {error.hint}", param, ctx)


SECRET_FILE = click.option(
    "--secret-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="FLOWRUN_CLUSTER_SECRET_FILE",
    default=DEFAULT_SECRET,
    show_default=True,
    help="The secret that all processes of the cluster share; only its owner may read the file.",
)


def host_and_port(address: Address) -> str:
    """As users type it.

    >>> host_and_port(parse_address("tcp://127.0.0.1:6123"))
    '127.0.0.1:6123'
    """
    return str(address).removeprefix("tcp://")
