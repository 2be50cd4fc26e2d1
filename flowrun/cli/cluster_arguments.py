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
    from flowrun.runners.http_requests import RestAddress
    from flowrun.runners.session.client import ClusterClient
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


class ClusterAddressType(AddressType):
    """As `AddressType`; or `http://HOST:PORT` or `https://HOST:PORT`, where a cluster serves its REST API."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The address, or a `RestAddress`. Raises as `AddressType`."""
        if not isinstance(value, str) or not value.startswith(("http://", "https://")):
            return super().convert(value, param, ctx)
        from flowrun.runners.http_requests import parse_rest_address

        try:
            return parse_rest_address(value)
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


TOKEN_FILE = click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="FLOWRUN_TOKEN_FILE",
    metavar="FILE",
    help="The token of the REST API, as text; only its owner may read the file.",
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
        addresses: of its dispatcher, and of those that would take its place; empty if it is reached by its REST API.
        secret_file: where its secret is.
        tls: folder of certificates; None: connections are not encrypted, or by those of a REST API that systems trust.
        is_default: only the environment names it: it does not count for a job that is to run elsewhere.
        rest: where its REST API may listen, if it is reached by that.
        token_file: of the REST API; None: the token stands in the addresses.
    """

    addresses: tuple[Address, ...]
    secret_file: Path
    tls: Path | None = None
    is_default: bool = False
    rest: tuple[RestAddress, ...] = ()
    token_file: Path | None = None

    def client(self) -> ClusterClient:
        """A client of it. Raises ClusterError: a file cannot be used, or nobody answers there."""
        from flowrun.runners.session.client import HttpCluster, RpcCluster

        if not self.rest:
            return RpcCluster(self.addresses, cluster_credentials(self.secret_file, self.tls))
        from flowrun.runners.http_requests import HttpRequests, trusting

        encrypted = any(address.encrypted for address in self.rest)
        context = trusting(None if self.tls is None else self.tls.expanduser()) if encrypted else None
        return HttpCluster(HttpRequests(self.rest, [self._token(address) for address in self.rest], context))

    def _token(self, address: RestAddress) -> str:
        from flowrun.runtime.rpc.secret import TOKEN, read_secret

        if address.token is not None:
            return address.token
        if self.token_file is None:
            raise ClusterError(
                f"the REST API at {address} needs a token, and none was given",
                hint="--token-file FILE, or the variable FLOWRUN_TOKEN_FILE, names the file that its process was given; "
                "the address of the cluster itself has no http://",
            )
        return read_secret(self.token_file.expanduser(), TOKEN).value.decode()

    def __str__(self) -> str:
        """As messages call it."""
        places = [*map(host_and_port, self.addresses), *map(str, self.rest)]
        return f"the cluster at {' or '.join(places)}"

    def as_arguments(self) -> str:
        """The options that name this cluster, without tokens.

        >>> from flowrun.runtime.rpc.address import parse_address
        >>> ClusterOptions((parse_address("tcp://10.0.0.1:6123"),), Path("my secret")).as_arguments()
        "--cluster 10.0.0.1:6123 --secret-file 'my secret'"
        """
        places = " ".join(f"--cluster {host_and_port(address)}" for address in self.addresses)
        if not self.rest:
            return f"{places}{proofs_as_arguments(self.secret_file, self.tls)}"
        words = [word for address in self.rest for word in ("--cluster", str(address))]
        words += [] if self.token_file is None else ["--token-file", str(self.token_file)]
        words += [] if self.tls is None else ["--tls", str(self.tls)]
        return shlex.join(words)


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
    """Add --cluster and what proves who asks; the command gets them as one argument `cluster`: `ClusterOptions`, or None."""

    @functools.wraps(command)
    def without_token_file(*args: Any, **given: Any) -> Any:
        del given["token_file"]  # `job_cluster_options` finds it in the context
        return command(*args, **given)

    return job_cluster_options(cast(F, TOKEN_FILE(without_token_file)))


def job_cluster_options(command: F) -> F:
    """As `cluster_options`, for commands that have --token-file already, by `rest_options`."""

    @functools.wraps(command)
    def with_cluster(
        *args: Any, cluster_addresses: tuple[Any, ...], secret_file: Path, tls: Path | None, **rest: Any
    ) -> Any:
        cluster = _cluster_at(cluster_addresses, secret_file, tls) if cluster_addresses else None
        return command(*args, cluster=cluster, **rest)

    option = click.option(
        "--cluster",
        "cluster_addresses",
        type=ClusterAddressType(),
        multiple=True,
        envvar="FLOWRUN_CLUSTER",
        metavar="HOST:PORT|URL",
        help="The cluster that `flowrun jobmanager` or `flowrun cluster up` has started there; given several times, the one that leads. "
        "http://HOST:PORT or https://HOST:PORT is where it serves its REST API, which --token-file opens.",
    )
    return cast(F, option(SECRET_FILE(TLS(with_cluster))))


def _cluster_at(addresses: tuple[Any, ...], secret_file: Path, tls: Path | None) -> ClusterOptions:
    """The cluster at the addresses that the present command was given. Raises UsageError: they are of two kinds."""
    rest = tuple(address for address in addresses if is_rest_address(address))
    if rest and len(rest) < len(addresses):
        raise click.UsageError("--cluster names either addresses HOST:PORT, or those of the REST API (http…), not both")
    token_file = click.get_current_context().params.get("token_file")
    is_default = not is_given("cluster_addresses")
    return ClusterOptions(() if rest else addresses, secret_file, tls, is_default, rest, token_file if rest else None)


def is_rest_address(address: object) -> bool:
    """Whether a value of `ClusterAddressType` is the address of a REST API."""
    from flowrun.runners.http_requests import RestAddress

    return isinstance(address, RestAddress)


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
