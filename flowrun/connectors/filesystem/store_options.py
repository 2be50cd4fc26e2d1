"""Options that say where an object store is and who asks: for tables whose store differs from that of the environment."""

from __future__ import annotations

from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.errors import OptionError
from flowrun.masking import learn_secret

STORE_OPTIONS = (
    Option(
        "s3.endpoint",
        OptionType.STRING,
        "With `s3://`: where the store is, `https://HOST:PORT`, if it is not Amazon's; else what the environment says.",
    ),
    Option("s3.region", OptionType.STRING, "With `s3://`: the region of the bucket; else what the environment says."),
    Option(
        "s3.access-key",
        OptionType.STRING,
        "With `s3://`: the key's name. Without it, credentials are looked for as docs/storage.md says, which is safer.",
        secret=True,
    ),
    Option("s3.secret-key", OptionType.STRING, "With `s3://`: the key itself, from a secret.", secret=True),
    Option("s3.session-token", OptionType.STRING, "With `s3://`: the token of a key that expires.", secret=True),
    Option(
        "gs.endpoint",
        OptionType.STRING,
        "With `gs://`: where the store is, `https://HOST:PORT`, if it is not Google's; else what the environment says.",
    ),
)

_ARGUMENTS = {
    "s3.access-key": "access_key",
    "s3.secret-key": "secret_key",
    "s3.session-token": "session_token",
    "s3.region": "region",
}
_SCHEMES = {"s3": ("s3://", "s3a://"), "gs": ("gs://", "gcs://")}
_SECRET = ("access_key", "secret_key", "session_token")


@record
class Store:
    """What options say of a store; can be pickled.

    Attributes:
        arguments: (name, value) of `pyarrow.fs.S3FileSystem`, sorted.
        parameters: of another store, which stand behind its URI.
    """

    arguments: tuple[tuple[str, str], ...] = ()
    parameters: str = ""

    def __repr__(self) -> str:
        return f"Store({', '.join(name for name, _ in self.arguments)})"

    def open(self) -> pafs.FileSystem:
        """The file system.

        Raises:
            OptionError: the store's client refuses the options.
        """
        for name, value in self.arguments:
            if name in _SECRET:
                learn_secret(value)
        try:
            return pafs.S3FileSystem(**dict(self.arguments))
        except (pa.ArrowException, ValueError) as error:
            raise OptionError("s3.endpoint", f"the options of the store cannot be used: {error}") from error


def store_of(options: Options, path: str) -> Store | None:
    """The store that options describe; None: they say nothing of it.

    Raises:
        OptionError: they do not go together, or the path is not in such a store.
    """
    given = {o.name: str(options.get(o.name)) for o in STORE_OPTIONS if options.get(o.name) is not None}
    if not given:
        return None
    first = next(iter(given))
    scheme, _, _ = first.partition(".")
    if not path.startswith(_SCHEMES[scheme]):
        raise OptionError(first, f"option '{first}' is for paths that begin with {scheme}://")
    if "?" in path:
        raise OptionError(
            first,
            f"option '{first}' and parameters behind the path cannot both be given",
            hint="use options for all of them",
        )
    if ("s3.access-key" in given) != ("s3.secret-key" in given):
        raise OptionError(first, "'s3.access-key' and 's3.secret-key' are given together, or not at all")
    other = next((name for name in given if not name.startswith(f"{scheme}.")), None)
    if other is not None:
        raise OptionError(
            other, f"options '{first}' and '{other}' are of different stores", hint="leave one of them out"
        )
    arguments = {_ARGUMENTS[name]: value for name, value in given.items() if name in _ARGUMENTS}
    if f"{scheme}.endpoint" in given:
        arguments |= _endpoint(f"{scheme}.endpoint", given[f"{scheme}.endpoint"])
    if scheme == "gs":
        return Store(parameters="?" + "&".join(f"{name}={value}" for name, value in arguments.items()))
    return Store(tuple(sorted(arguments.items())))


def _endpoint(option: str, text: str) -> dict[str, str]:
    parts = urlsplit(text if "://" in text else f"https://{text}")
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/") or parts.query:
        raise OptionError(option, f"'{text}' is no address of a store", hint="for example https://localhost:9000")
    return {"endpoint_override": parts.netloc, "scheme": parts.scheme}
