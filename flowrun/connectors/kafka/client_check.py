"""What the client library would refuse of a table's properties, without a client: nothing is connected, and no thread is started."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from flowrun.connectors.kafka.cluster import CLIENT, RENAMED, KafkaCluster, library, login_of, refused, said_by
from flowrun.core.options import Options
from flowrun.errors import OptionError, SetupError, did_you_mean

_MARK = "flowrun.checks"
"""A property that is none, and a login that is none: what is set before the first, and goes together before the second, is in order."""
_NO_LOGIN = {"security.protocol": "sasl_plaintext", "sasl.mechanism": _MARK}
_LOGIN = (*_NO_LOGIN, "sasl.mechanisms")
_LOADED = "plugin.library.paths"
"""Libraries that are loaded as the property is set."""
_OF_TRANSLATED = {
    **{own: java for java, own in RENAMED.items()},
    "ssl.ca.location": "ssl.truststore.location",
    "sasl.username": "sasl.jaas.config",
    "sasl.password": "sasl.jaas.config",
}
_KNOWN = (
    "acks", "auto.offset.reset", "batch.size", "bootstrap.servers", "client.id", "client.rack", "compression.type",
    "connections.max.idle.ms", "delivery.timeout.ms", "enable.idempotence", "fetch.max.bytes", "fetch.min.bytes", "group.id",
    "group.instance.id", "heartbeat.interval.ms", "isolation.level", "linger.ms", "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes", "max.poll.interval.ms", "metadata.max.age.ms", "queued.max.messages.kbytes",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retries", "retry.backoff.ms", "sasl.mechanism",
    "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.method",
    "sasl.oauthbearer.token.endpoint.url", "sasl.password", "sasl.username", "security.protocol", "session.timeout.ms",
    "ssl.ca.location", "ssl.certificate.location", "ssl.endpoint.identification.algorithm", "ssl.key.location",
    "ssl.key.password", "ssl.keystore.location", "ssl.keystore.password", "transaction.timeout.ms", *RENAMED,
)  # fmt: skip
"""Of the properties that may be meant by one that is unknown."""


def check_client(options: Options, cluster: KafkaCluster, kind: str, settings: Mapping[str, Any]) -> None:
    """Whether the client library takes a table's properties; where it is not installed, nothing is checked.

    Whether files are there and logins work is for the machine that runs the job to say.

    Args:
        options: of the table.
        cluster: that was made of them.
        kind: the class of the client, `Consumer` or `Producer`.
        settings: as such a client has them, beside the user's properties and callbacks.

    Raises:
        OptionError: a property is unknown, has an impossible value, or contradicts another.
    """
    if not CLIENT.is_installed:
        return
    with suppress(SetupError):  # it cannot be imported on this machine
        make = getattr(library(), kind)
        properties = {name: value for name, value in cluster.properties.items() if name != _LOADED}
        for name, value in properties.items():
            text = _refusal(make, {"group.id": "g", name: value, _MARK: ""})
            if text is not None:
                raise _of_one(_as_given(options, name), text)
        if properties.get("security.protocol", "").lower().startswith("sasl_") and login_of(properties) == "GSSAPI":
            _check_kerberos(make, options)
        together = {name: value for name, value in {**properties, **settings}.items() if name not in _LOGIN}
        text = _refusal(make, {"log_level": 0, **together, **_NO_LOGIN})
        if text is not None:
            named = (name for name in re.findall(r"`([\w.]+)`", text) if name in properties)
            raise refused(_as_given(options, next(named, "bootstrap.servers")), text)


def _check_kerberos(make: Callable[[dict[str, Any]], Any], options: Options) -> None:
    text = _refusal(make, {"group.id": "g", "builtin.features": "sasl_gssapi", _MARK: ""})
    if text is not None:
        is_said = options.get("properties.sasl.mechanism") is not None
        raise OptionError(
            "properties.sasl.mechanism" if is_said else "properties.security.protocol",
            "kafka: the client library that is installed cannot log in by GSSAPI (Kerberos)"
            + ("" if is_said else ", the default of 'properties.sasl.mechanism'"),
            hint="name another mechanism, or install a client that is built with libsasl2: "
            "pip install --no-binary confluent-kafka confluent-kafka",
        )


def _refusal(make: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> str | None:
    """Why the client library does not make a client; None: only because of the mark."""
    try:
        client = make(config)
    except library().KafkaException as error:
        text = said_by(error)
        return None if _MARK in text else text
    except (AttributeError, TypeError, ValueError) as error:  # of callbacks and the like, which Python programs give
        return str(error)
    if hasattr(client, "close"):
        client.close()
    return None


def _of_one(option: str, text: str) -> OptionError:
    """What to say of one property that is refused by itself."""
    if not text.startswith("No such configuration property"):
        return refused(option, text)
    name = option.removeprefix("properties.")
    near = did_you_mean(name, _KNOWN)
    return OptionError(
        option,
        f"kafka: the client has no property '{name}'",
        hint=near or "mend it or leave it out; properties.* are those of Kafka's clients, and of librdkafka",
    )


def _as_given(options: Options, name: str) -> str:
    """The option that a property of librdkafka comes from."""
    java = _OF_TRANSLATED.get(name)
    is_javas = java is not None and options.get(f"properties.{java}") is not None
    return f"properties.{java if is_javas else name}"
