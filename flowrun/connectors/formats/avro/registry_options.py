"""The options of formats whose schemas are in a schema registry, with Flink's names."""

from __future__ import annotations

from dataclasses import field

from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.errors import OptionError

_TEXT = OptionType.STRING
REGISTRY_OPTIONS = (
    Option("url", _TEXT, "Where the schema registry is; several URLs of one registry are separated by commas. Needed."),
    Option(
        "subject", _TEXT, "What written schemas are registered under; for Kafka by default TOPIC-value or TOPIC-key."
    ),
    Option(
        "schema",
        _TEXT,
        "The schema to register instead of the one that stands for the table, with other names or documentation; it must mean the same.",
    ),
    Option(
        "auto.register.schemas",
        OptionType.BOOLEAN,
        "Register the schema of what is written; false: it must be there already.",
        default=True,
    ),
    Option(
        "basic-auth.credentials-source",
        _TEXT,
        "Where user and password come from: USER_INFO (`basic-auth.user-info`) or URL (`https://user:password@host`).",
    ),
    Option("basic-auth.user-info", _TEXT, "`user:password` for the registry.", secret=True),
    Option(
        "bearer-auth.credentials-source",
        _TEXT,
        "Where the bearer token comes from: STATIC_TOKEN (`bearer-auth.token`).",
    ),
    Option("bearer-auth.token", _TEXT, "Bearer token for the registry.", secret=True),
    Option(
        "ssl.truststore.location",
        _TEXT,
        "PEM file with the authorities that the registry's certificate is checked with.",
    ),
    Option("ssl.truststore.password", _TEXT, "Known to Flink; PEM files of authorities need none.", secret=True),
    Option("ssl.keystore.location", _TEXT, "PEM file with the certificate and key that are shown to the registry."),
    Option("ssl.keystore.password", _TEXT, "Password of the key in `ssl.keystore.location`.", secret=True),
    Option(
        "properties.#",
        _TEXT,
        "More properties of the registry's client: `http.connect.timeout.ms` or `http.read.timeout.ms`.",
    ),
)
_TIMEOUTS = ("http.connect.timeout.ms", "http.read.timeout.ms")
_TIMEOUT_MS = 30_000
_JAVA_STORES = (".jks", ".p12", ".pfx")


@record
class RegistrySettings:
    """Where a schema registry is, and how to get in."""

    urls: tuple[str, ...]
    user_info: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    authorities: str = ""
    certificate: str = ""
    key_password: str = field(default="", repr=False)
    timeout_ms: int = _TIMEOUT_MS


def registry_settings(options: Options, format: str) -> RegistrySettings:
    """The settings that a format's options give.

    Raises:
        OptionError: they cannot be served.
    """

    def given(name: str) -> str:
        return str(options.get(f"{format}.{name}") or "")

    urls = tuple(u.strip().rstrip("/") for u in given("url").split(",") if u.strip())
    if not urls or not all(u.startswith(("http://", "https://")) for u in urls):
        raise OptionError(
            f"{format}.url",
            f"option '{format}.url' is needed and expects an http:// or https:// URL",
            hint="for example http://localhost:8081",
        )
    _one_of(format, "basic-auth.credentials-source", given("basic-auth.credentials-source"), ("USER_INFO", "URL"))
    _one_of(format, "bearer-auth.credentials-source", given("bearer-auth.credentials-source"), ("STATIC_TOKEN",))
    if given("basic-auth.credentials-source").upper() == "USER_INFO" and ":" not in given("basic-auth.user-info"):
        name = f"{format}.basic-auth.user-info"
        raise OptionError(name, f"option '{name}' is needed as user:password")
    for name in ("ssl.truststore.location", "ssl.keystore.location"):
        if given(name).lower().endswith(_JAVA_STORES):
            raise OptionError(
                f"{format}.{name}",
                f"option '{format}.{name}' expects a PEM file, got '{given(name)}', a store of Java's",
                hint="openssl pkcs12 -in store.p12 -out store.pem -nodes",
            )
    timeouts = []
    for name, value in options.under(f"{format}.properties").items():
        if name not in _TIMEOUTS or not str(value).isdigit():
            key = f"{format}.properties.{name}"
            raise OptionError(
                key, f"option '{key}' is not known", hint="known are " + " and ".join(_TIMEOUTS) + ", in ms"
            )
        timeouts.append(int(str(value)))
    return RegistrySettings(
        urls=urls,
        user_info=given("basic-auth.user-info"),
        token=given("bearer-auth.token"),
        authorities=given("ssl.truststore.location"),
        certificate=given("ssl.keystore.location"),
        key_password=given("ssl.keystore.password"),
        timeout_ms=max(timeouts, default=_TIMEOUT_MS),
    )


def _one_of(format: str, name: str, value: str, known: tuple[str, ...]) -> None:
    if value and value.upper() not in known:
        key = f"{format}.{name}"
        raise OptionError(key, f"option '{key}' must be {' or '.join(known)}, got '{value}'")
