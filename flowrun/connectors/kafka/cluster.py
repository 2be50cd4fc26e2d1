"""A Kafka cluster as the user's `properties.*` describe it, and the settings of the clients that talk to it.

The properties are those of Kafka's Java clients, as in Apache Flink; those that librdkafka calls differently are translated.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from flowrun.api.client_library import ClientLibrary
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.errors import ConnectorError, OptionError
from flowrun.masking import learn_secret

CLIENT = ClientLibrary("kafka", ("confluent_kafka",))
REQUEST_TIMEOUT_S = 20.0
"""How long a question about topics and offsets may take, over all attempts."""
NEW_TOPIC_S = 2.0
"""How long a topic may be unknown before it counts as missing: a broker hears of one that was just created a moment later."""

_log = logging.getLogger(__name__)
_client_log = logging.getLogger(f"{__name__}.client")
_client_log.addHandler(logging.NullHandler())  # what matters comes as an error, too
_client_log.propagate = False
RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
"""What librdkafka calls a property of the Java clients, if it is not the same."""
_WITHOUT_MEANING = (
    "key.deserializer",
    "value.deserializer",
    "key.serializer",
    "value.serializer",
    "max.poll.records",
    "buffer.memory",
    "max.block.ms",
    "default.api.timeout.ms",
    "client.dns.lookup",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.keystore.type",
    "enable.auto.commit",
    "commit.offsets.on.checkpoint",
    "register.consumer.metrics",
    "client.id.prefix",
    "partition.discovery.interval.ms",
    "partition.assignment.strategy",
    "exclude.internal.topics",
    "socket.connection.setup.timeout.max.ms",
    "auto.include.jmx.reporter",
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.provider",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
    "security.providers",
    "metadata.max.idle.ms",
    "register.producer.metrics",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "throw.on.fetch.stable.offset.unsupported",
)
"""Properties of the Java clients, or of Flink's sources, that there is nothing to do for here; so are those of `_MEASURES`."""
_MEASURES = ("metric.", "metrics.")
_CLASSES = re.compile(
    r"(?:interceptor\.classes|config\.providers|sasl\.login\.class|.*\.callback\.handler\.class|.*\.factory\.class)"
)
_ADDRESS = re.compile(r"(?:[A-Za-z_]+://)?(?:\[[0-9A-Fa-f:.]+\]|[^\s:/,\[\]]+)(?::([0-9]+))?")
_MOST_PORT = 65_535
_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.crl.location",
)
_LOOKED_FOR = "probe"
"""Instead of a file of authorities: the client looks at the usual places."""
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_WITH_PASSWORD = _MECHANISMS[:3]
_JAAS_PAIR = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")
_CUT_OFF = re.compile(r"disconnected|timed out|transport failure|connection", re.IGNORECASE)
"""Words of an error of a login that ended as its connection did."""
_JAVAS_OWN = (".jks", ".jceks")
_JKS = (*_JAVAS_OWN, ".p12", ".pfx")


@record
class KafkaCluster:
    """Where the brokers are, and how clients introduce themselves. Can be pickled.

    Attributes:
        properties: settings as librdkafka has them.
    """

    properties: Mapping[str, str]

    @property
    def bootstrap(self) -> str:
        """The addresses that are asked first."""
        return self.properties["bootstrap.servers"]

    @property
    def group(self) -> str | None:
        """The consumer group, if the user named one."""
        return self.properties.get("group.id")

    @property
    def reads_uncommitted(self) -> bool:
        """Whether messages of open and aborted transactions are read."""
        return self.properties.get("isolation.level") == "read_uncommitted"

    def client(self, make: Callable[[dict[str, Any]], Any], errors: ClientErrors, settings: Mapping[str, Any]) -> Any:
        """A client of librdkafka.

        Args:
            make: the class of the client.
            errors: is told of errors that belong to no call.
            settings: go before the user's.

        Raises:
            OptionError: a property is unknown, or its value is wrong.
        """
        self._check_files()
        config = {"log_level": 0, **self.properties, **settings, "error_cb": errors.take, "logger": _client_log}
        try:
            return make(config)
        except library().KafkaException as error:
            text = said_by(error)
            name = re.search(r'["`]([\w.]+)["`]', text)
            raise refused(f"properties.{name[1]}" if name else "properties.bootstrap.servers", text) from error

    def _check_files(self) -> None:
        """Whether files of certificates are there. The client library does not name them, and may end the process where one is not.

        Raises:
            OptionError: one is not.
        """
        if not self.properties.get("security.protocol", "").lower().endswith("ssl"):
            return
        for name in _FILES:
            path = self.properties.get(name)
            if path and path != _LOOKED_FOR and not os.path.exists(path):
                raise OptionError(
                    f"properties.{name}",
                    f"kafka: properties.{name} names a file that is not there: {os.path.abspath(path)}",
                    hint="it has to be on each machine that runs the job; a relative path starts in the working directory",
                )


def said_by(error: Any) -> str:
    """The text of an exception of the client library."""
    problem = error.args[0]
    return str(problem.str() if hasattr(problem, "str") else problem).strip()


def refused(option: str, text: str) -> OptionError:
    """What to say of properties that the client library does not take.

    Args:
        option: the property that it names.
        text: what it says.
    """
    return OptionError(
        option,
        f"kafka: the client refuses its properties: {text}",
        hint="mend it or leave it out; properties.* are those of Kafka's clients, and of librdkafka",
    )


class ClientErrors:
    """Errors that belong to no call: brokers that are gone, logins that fail. Told from threads of any kind; the last one is kept.

    Args:
        bootstrap: of the cluster, for messages.
        logs: whether the log tells of them, for who is not waiting for an answer.
    """

    def __init__(self, bootstrap: str, *, logs: bool = True) -> None:
        self._bootstrap = bootstrap
        self._logs = logs
        self._told: set[int] = set()
        self.last: Any = None

    def take(self, error: Any) -> None:
        """Keep an error; the first of a kind is logged."""
        kinds = library().KafkaError
        vague = (kinds._TRANSPORT, kinds._ALL_BROKERS_DOWN)  # what follows from others, and does not say why
        if self.last is None or error.code() not in vague or self.last.code() in vague:
            self.last = error
        if error.code() not in self._told:
            self._told.add(error.code())
            if self._logs:
                _log.warning("Kafka at %s: %s", self._bootstrap, error.str())

    def works(self) -> None:
        """The cluster has answered."""
        self.last = None
        self._told.clear()

    def check(self) -> None:
        """Raise ConnectorError if waiting is of no use.

        That is where a topic is gone, the login or a certificate is refused, or the client is broken.
        """
        error = self.last
        if error is None:
            return
        kinds = library().KafkaError
        if error.code() in (kinds.UNKNOWN_TOPIC_OR_PART, kinds._UNKNOWN_TOPIC, kinds._UNKNOWN_PARTITION):
            raise ConnectorError(
                f"a topic does not exist any more: {error.str()}",
                hint="a topic must not be deleted while it is used; take the table out, or start it anew under another uid",
            )
        if error.code() == kinds._AUTHENTICATION:
            raise ConnectorError(
                f"Kafka at {self._bootstrap} refuses the login: {error.str()}",
                retryable=None if _CUT_OFF.search(error.str()) else False,
                hint="check properties.security.protocol, properties.sasl.mechanism, properties.sasl.username and properties.sasl.password",
            )
        if error.code() == kinds._SSL:
            raise ConnectorError(
                f"no encrypted connection to Kafka at {self._bootstrap}: {error.str()}",
                retryable=False if "certificate" in error.str() else None,
                hint="check properties.ssl.truststore.location, and properties.ssl.endpoint.identification.algorithm",
            )
        if error.fatal():
            raise ConnectorError(
                f"the client of Kafka at {self._bootstrap} cannot go on: {error.str()}", retryable=True
            )

    def unreachable(self, problem: Any) -> ConnectorError:
        """The error of a call that got no answer in time."""
        why = self.last.str() if self.last is not None else problem
        return ConnectorError(
            f"Kafka at {self._bootstrap} does not answer: {why}",
            retryable=True,
            hint="check properties.bootstrap.servers and properties.security.protocol, and that the broker can be reached from here",
        )


def library() -> ModuleType:
    """The client library. Raises SetupError if it is not installed."""
    return CLIENT.module("confluent_kafka", "connector 'kafka'")


def admin_library() -> ModuleType:
    """Its part that manages clusters. Raises SetupError if it is not installed."""
    return CLIENT.module("confluent_kafka.admin", "connector 'kafka'")


def may_pass(error: Any) -> bool:
    """Whether a broker may answer the same question later.

    The client library says so of some errors only: in answers to a consumer or an administrator it leaves that to who asked. So it is as a
    coordinator moves, or begins: the first commit of all finds none, as its topic is made by the question.
    """
    kinds = library().KafkaError
    passing = (
        kinds._TRANSPORT, kinds._TIMED_OUT, kinds._ALL_BROKERS_DOWN, kinds._RESOLVE, kinds.REQUEST_TIMED_OUT,
        kinds.LEADER_NOT_AVAILABLE, kinds.NOT_LEADER_FOR_PARTITION, kinds.COORDINATOR_NOT_AVAILABLE,
        kinds.COORDINATOR_LOAD_IN_PROGRESS, kinds.NOT_COORDINATOR, kinds._WAIT_COORD, kinds.BROKER_NOT_AVAILABLE,
        kinds.CONCURRENT_TRANSACTIONS, kinds.UNSTABLE_OFFSET_COMMIT, kinds.NETWORK_EXCEPTION,
    )  # fmt: skip
    return bool(error.retriable()) or error.code() in passing


def is_refused(error: Any) -> bool:
    """Whether a broker will answer the same until somebody changes something: rights, names, versions."""
    kinds = library().KafkaError
    return error.code() in (
        kinds.TOPIC_AUTHORIZATION_FAILED, kinds.GROUP_AUTHORIZATION_FAILED, kinds.CLUSTER_AUTHORIZATION_FAILED,
        kinds.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, kinds.SASL_AUTHENTICATION_FAILED, kinds.UNSUPPORTED_SASL_MECHANISM,
        kinds.ILLEGAL_SASL_STATE, kinds.SECURITY_DISABLED, kinds.TOPIC_EXCEPTION, kinds.INVALID_GROUP_ID, kinds.POLICY_VIOLATION,
        kinds.UNSUPPORTED_VERSION, kinds.UNSUPPORTED_FOR_MESSAGE_FORMAT, kinds.INVALID_REQUIRED_ACKS, kinds.INVALID_TIMESTAMP,
        kinds.INVALID_RECORD, kinds._UNSUPPORTED_FEATURE, kinds._INVALID_ARG,
    )  # fmt: skip


def cluster_of(options: Options) -> KafkaCluster:
    """The cluster of a table's options.

    Raises:
        OptionError: a property cannot be translated.
    """
    given = {name: str(value) for name, value in options.under("properties").items() if value is not None}
    found: dict[str, str] = {}
    for name, value in given.items():
        if name == "sasl.jaas.config":
            found.update(_login(value))
        elif name == "ssl.truststore.location":
            found["ssl.ca.location"] = _pem(name, value)
        elif name == "ssl.keystore.location" and value.endswith(_JAVAS_OWN):
            raise OptionError(
                f"properties.{name}",
                f"kafka: properties.{name} names a key store of Java, '{value}', which cannot be read here",
                hint=f"keytool -importkeystore … -deststoretype PKCS12 -destkeystore client.p12; properties.{name} = client.p12",
            )
        elif _CLASSES.fullmatch(name):
            raise OptionError(
                f"properties.{name}",
                f"kafka: properties.{name} names a class of Java, '{value}', which cannot run here",
                hint="leave it out, and log in by librdkafka's own properties if it does that: properties.sasl.mechanism, "
                "properties.sasl.username, properties.sasl.oauthbearer.…",
            )
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value or "none"
        elif name not in _WITHOUT_MEANING and not name.startswith(_MEASURES):
            found[RENAMED.get(name, name)] = value
    _check_addresses(found.get("bootstrap.servers", ""))
    if not found.get("group.id", "a name").strip():
        raise OptionError(
            "properties.group.id",
            "kafka: 'properties.group.id' is empty",
            hint="name a consumer group, or leave it out",
        )
    if found.get("auto.offset.reset") == "none":  # so it is where nothing is said; librdkafka has another word for it
        del found["auto.offset.reset"]
    _check_login(found)
    return KafkaCluster(found)


def _check_addresses(servers: str) -> None:
    option = "properties.bootstrap.servers"
    hint = "host:port, several are separated by ','"
    addresses = [address.strip() for address in servers.split(",") if address.strip()]
    if not addresses:
        raise OptionError(option, f"kafka: '{option}' is empty", hint=hint)
    for address in addresses:
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise OptionError(option, f"kafka: '{address}' is no address of a broker", hint=hint)
        if found[1] is not None and not 1 <= int(found[1]) <= _MOST_PORT:
            raise OptionError(
                option,
                f"kafka: '{address}' is no address of a broker: the port is {found[1]}",
                hint=f"ports are 1 to {_MOST_PORT}",
            )


def login_of(properties: Mapping[str, str]) -> str:
    """The mechanism of SASL that librdkafka logs in by, if the protocol is one of SASL.

    >>> login_of({"sasl.mechanism": "PLAIN"}), login_of({})
    ('PLAIN', 'GSSAPI')
    """
    return properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"


def _check_login(found: Mapping[str, str]) -> None:
    """Whether what a login by SASL needs is given. Raises OptionError."""
    if not found.get("security.protocol", "").lower().startswith("sasl_"):
        return
    mechanism = login_of(found)
    if mechanism not in _MECHANISMS:
        raise OptionError(
            "properties.sasl.mechanism",
            f"kafka: no mechanism of a login: '{mechanism}'",
            hint=f"one of {', '.join(_MECHANISMS)}",
        )
    for name in ("sasl.username", "sasl.password"):
        if mechanism in _WITH_PASSWORD and not found.get(name):
            raise OptionError(
                "properties.sasl.mechanism",
                f"kafka: 'properties.sasl.mechanism' = '{mechanism}' needs 'properties.{name}'",
                hint="or 'properties.sasl.jaas.config', which holds both",
            )


def _login(text: str) -> dict[str, str]:
    """User and password of a JAAS text of Java, `…PlainLoginModule required username="u" password="p";`."""
    pairs = {name: next(v for v in values if v or v == values[-1]) for name, *values in _JAAS_PAIR.findall(text)}
    if "username" not in pairs or "password" not in pairs:
        raise OptionError(
            "properties.sasl.jaas.config",
            "kafka: properties.sasl.jaas.config holds no username and password, and other logins of Java are not known here",
            hint="give librdkafka's own properties: properties.sasl.username, properties.sasl.password, properties.sasl.oauthbearer.…",
        )
    login = {f"sasl.{name}": re.sub(r"\\(.)", r"\1", pairs[name]) for name in ("username", "password")}
    learn_secret(login["sasl.password"])
    return login


def _pem(name: str, path: str) -> str:
    if path.endswith(_JKS):
        raise OptionError(
            f"properties.{name}",
            f"kafka: properties.{name} names a key store of Java, '{path}'; certificates are read as PEM here",
            hint=f"keytool -importkeystore … -deststoretype PKCS12, then openssl pkcs12 -in … -out ca.pem; properties.{name} = ca.pem",
        )
    return path
