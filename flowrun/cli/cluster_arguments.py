"""Arguments of the commands that make a cluster."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from flowrun.cli.arguments import DurationType
from flowrun.core.record import record
from flowrun.errors import ClusterError

if TYPE_CHECKING:
    from flowrun.runtime.rpc.address import Address
    from flowrun.runtime.rpc.link import Credentials

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_PORT = 6123
DEFAULT_SECRET = "~/.flowrun/cluster.secret"


class AddressType(click.ParamType["Address"]):
    """`HOST:PORT`, with `tcp://` or without, or `unix:///PATH`; the port may be left out."""

    name = "address"

    def __init__(self, default_port: int = DEFAULT_PORT) -> None:
        self._default_port = default_port

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """The address.

        Raises:
            click.BadParameter: it is none.
        """
        if not isinstance(value, str):
            address: Address = value
            return address
        from flowrun.runtime.rpc.address import parse_address

        try:
            return parse_address(value, self._default_port)
        except ClusterError as error:
            self.fail(f"{error.message}; {error.hint}", param, ctx)


def listen_option(text: str) -> Callable[[F], F]:
    """The option `--listen` of commands that start a cluster, with its help."""
    return click.option(
        "--listen",
        type=AddressType(),
        default=f"127.0.0.1:{DEFAULT_PORT}",
        show_default=True,
        metavar="HOST:PORT",
        help=text,
    )


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


STATE = click.option(
    "--state",
    metavar="FOLDER",
    help="Keep jobs there: they go on when the cluster is started again, or when another job manager that waits with the same folder "
    "takes its place.",
)


HANG_TIMEOUT = click.option(
    "--hang-timeout",
    "hang_timeout_ms",
    type=DurationType(),
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="How long a job manager that leads may hang before it is killed, so that another one can lead; 0s: for ever.",
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

    >>> from flowrun.runtime.rpc.address import parse_address
    >>> host_and_port(parse_address("tcp://127.0.0.1:6123"))
    '127.0.0.1:6123'
    """
    return str(address).removeprefix("tcp://")


@record
class ClusterOptions:
    """A session cluster, as the user names it.

    Attributes:
        addresses: of its dispatcher, and of those that would take its place.
        secret_file: where its secret is.
        tls: folder of certificates; None: connections are not encrypted.
        is_default: only the environment names it: it does not count for a job that is to run elsewhere.
    """

    addresses: tuple[Address, ...]
    secret_file: Path
    tls: Path | None = None
    is_default: bool = False

    def credentials(self) -> Credentials:
        """What this process proves itself by. Raises ClusterError: a file cannot be used."""
        return cluster_credentials(self.secret_file, self.tls)

    def __str__(self) -> str:
        """As messages call it."""
        return f"the cluster at {' or '.join(map(host_and_port, self.addresses))}"

    def as_arguments(self) -> str:
        """The options that name this cluster.

        >>> from flowrun.runtime.rpc.address import parse_address
        >>> ClusterOptions((parse_address("tcp://10.0.0.1:6123"),), Path("my secret")).as_arguments()
        "--cluster 10.0.0.1:6123 --secret-file 'my secret'"
        """
        places = " ".join(f"--cluster {host_and_port(address)}" for address in self.addresses)
        return f"{places}{proofs_as_arguments(self.secret_file, self.tls)}"


def proofs_as_arguments(secret_file: Path, tls: Path | None) -> str:
    """The options that name a secret and a folder of certificates, for a command that a message proposes.

    >>> proofs_as_arguments(Path("my secret"), None), proofs_as_arguments(Path(DEFAULT_SECRET), Path("certificates"))
    (" --secret-file 'my secret'", ' --tls certificates')
    """
    return "".join(f" {shlex.quote(word)}" for word in proofs_as_words(secret_file, tls))


def proofs_as_words(secret_file: Path, tls: Path | None) -> list[str]:
    """As `proofs_as_arguments`, for a command that is started."""
    secret = [] if str(secret_file) == DEFAULT_SECRET else ["--secret-file", str(secret_file)]
    return secret + ([] if tls is None else ["--tls", str(tls)])


def cluster_options(command: F) -> F:
    """Add --cluster, --secret-file and --tls; the command gets them as one argument `cluster`: `ClusterOptions`, or None."""

    @functools.wraps(command)
    def with_cluster(
        *args: Any, cluster_addresses: tuple[Address, ...], secret_file: Path, tls: Path | None, **rest: Any
    ) -> Any:
        is_default = not is_given("cluster_addresses")
        cluster = ClusterOptions(cluster_addresses, secret_file, tls, is_default) if cluster_addresses else None
        return command(*args, cluster=cluster, **rest)

    option = click.option(
        "--cluster",
        "cluster_addresses",
        type=AddressType(),
        multiple=True,
        envvar="FLOWRUN_CLUSTER",
        metavar="HOST:PORT",
        help="The cluster that `flowrun jobmanager` or `flowrun cluster up` has started there; given several times, the one that leads.",
    )
    return cast(F, option(SECRET_FILE(TLS(with_cluster))))


DETACH = click.option(
    "--detach", is_flag=True, help="With --cluster: print the job's id when it is submitted, and leave it there."
)


def is_given(parameter: str) -> bool:
    """Whether the command line of the present command names an option, by the name of its parameter."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def cluster_of_job(
    cluster: ClusterOptions | None, detach: bool, workers: int | None, *, elsewhere: bool = False
) -> ClusterOptions | None:
    """The cluster that a job is to run on; None: it runs elsewhere.

    Args:
        cluster: that the user names.
        detach: whether the job is to be left there.
        workers: the value of `--workers` of the present command.
        elsewhere: whether another option asks for a place that is no cluster.

    Raises:
        click.UsageError: the options do not fit together.
    """
    if cluster is not None and cluster.is_default and (elsewhere or is_given("workers")):
        cluster = None
    given = click.get_current_context().params
    listens = given.get("rest_address") is not None
    if cluster is None and is_given("tls") and given.get("on") is None and not listens:
        raise click.UsageError(
            "--tls goes with --cluster, --rest or --on spark: a job of this machine listens at no network"
        )
    if cluster is not None and listens:
        raise click.UsageError("--rest is for jobs of this process: `flowrun ui --cluster` finds the page of a cluster")
    if detach and cluster is None:
        raise click.UsageError("--detach goes with --cluster: a job of this process ends with it")
    if cluster is not None and workers is not None:
        raise click.UsageError("--workers is for jobs of this machine: on a cluster each slot is a process")
    return cluster
