"""Arguments of the commands that make a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from flowrun.errors import ClusterError
from flowrun.runtime.rpc.address import Address, parse_address

if TYPE_CHECKING:
    from flowrun.runtime.rpc.link import Credentials

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


TLS = click.option(
    "--tls",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="FLOWRUN_CLUSTER_TLS",
    metavar="FOLDER",
    help="Encrypt all connections: the folder has this process's cert.pem and key.pem, and the authority ca.pem, by whose certificates "
    "all processes of the cluster know each other. No secret is needed then; one that is named must fit as well.",
)


def cluster_credentials(secret_file: Path, tls: Path | None, *, create: bool = False) -> Credentials:
    """What the processes of a cluster prove themselves by, from the options SECRET_FILE and TLS of the present command.

    Args:
        secret_file: of the secret, which counts beside certificates only if the user has named it.
        tls: folder of the certificates.
        create: make the secret if there is none.

    Raises:
        ClusterError: a file cannot be used.
    """
    from flowrun.runtime.rpc.link import Credentials
    from flowrun.runtime.rpc.secret import read_or_create_secret, read_secret

    identity = None
    if tls is not None:
        from flowrun.runtime.rpc.tls import read_identity

        identity = read_identity(tls.expanduser())
        source = click.get_current_context().get_parameter_source("secret_file")
        if source in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP):
            return Credentials(tls=identity)
    read = read_or_create_secret if create else read_secret
    return Credentials(read(secret_file.expanduser()), identity)


def host_and_port(address: Address) -> str:
    """As users type it.

    >>> host_and_port(parse_address("tcp://127.0.0.1:6123"))
    '127.0.0.1:6123'
    """
    return str(address).removeprefix("tcp://")
