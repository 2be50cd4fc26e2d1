"""SET: Flink's configuration keys, and flowrun's own as `flowrun.<setting>`, as the settings of the pipeline.

Settings are checked by the same specification as those of YAML pipelines: a script's keys are put into a tree of the same shape, each
with its place in the script. Values from the command line win over those of a script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from flowrun.core.record import record
from flowrun.core.units import flink_duration_ms
from flowrun.errors import near_matches
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.settings.declaration import SETTINGS
from flowrun.frontend.settings.reading import read_settings
from flowrun.frontend.shared_parts import merged_settings
from flowrun.frontend.sql.script.statements import OptionSyntax
from flowrun.frontend.sql.script.text import ScriptText
from flowrun.frontend.sql.spans import error_at
from flowrun.frontend.trees.checking import check_document
from flowrun.frontend.trees.nodes import ScalarStyle, YamlEntry, YamlMapping, YamlNode, YamlScalar, scalars
from flowrun.frontend.trees.spec import MapValue, RecordSpec, RecordValue, VariantValue
from flowrun.operators.function_scope import listed_packages
from flowrun.plan.nodes import Settings

_SETTINGS = "settings"
_TABLES = "tables"


@record
class ScriptOverrides:
    """Settings as `path=value` texts in order, and options by table."""

    settings: tuple[str, ...]
    tables: Mapping[str, Mapping[str, str]]


def read_overrides(given: Mapping[str, str], diagnostics: Diagnostics) -> ScriptOverrides:
    """The overrides by what they are about; anything else is reported.

    >>> read_overrides({"settings.parallelism": "4", "tables.orders.json.fail-on-missing-field": "true"}, Diagnostics())
    ScriptOverrides(settings=('settings.parallelism=4',), tables={'orders': {'json.fail-on-missing-field': 'true'}})
    """
    settings: list[str] = []
    tables: dict[str, dict[str, str]] = {}
    for path, value in given.items():
        parts = path.split(".")
        if parts[0] == _SETTINGS and len(parts) > 1:
            settings.append(f"{path}={value}")
        elif parts[0] == _TABLES and len(parts) > 2:
            tables.setdefault(parts[1], {})[".".join(parts[2:])] = value
        else:
            close = near_matches(parts[0], (_SETTINGS, _TABLES))
            hint = (
                f"did you mean '{close[0]}'?"
                if close
                else "in a script: settings.parallelism=4, tables.orders.path=in/"
            )
            diagnostics.error(f"--set {path}={value}: there is nothing of this name to set", None, hint=hint)
    return ScriptOverrides(tuple(settings), tables)


OWN_PREFIX = "flowrun."
FUNCTIONS = "functions"
NAME = "pipeline.name"
IDLE_TIMEOUT = "table.exec.source.idle-timeout"
WATERMARK_INTERVAL = "pipeline.auto-watermark-interval"
TIME_ZONE = "table.local-time-zone"
_SPECIAL = (NAME, IDLE_TIMEOUT, WATERMARK_INTERVAL)


def _same(text: str) -> str:
    return text


def _lower(text: str) -> str:
    return text.lower().replace("-", "_")


def _duration(text: str) -> str:
    return f"{text.strip()}ms" if text.strip().isdecimal() and text.strip() != "0" else text


def _reporter(text: str) -> str:
    return "otlp" if text.strip().lower() == "otel" else text


def _positive(text: str) -> str | None:
    return None if text.strip() == "-1" else text  # Flink's "not set"


def _mode(text: str) -> str:
    return "streaming" if text.lower() == "automatic" else text.lower()


_STRATEGIES = {
    "none": "none", "off": "none", "disable": "none", "fixeddelay": "fixed_delay", "fixed-delay": "fixed_delay",
    "failurerate": "failure_rate", "failure-rate": "failure_rate", "exponentialdelay": "exponential", "exponential-delay": "exponential",
}  # fmt: skip


def _strategy(text: str) -> str:
    return _STRATEGIES.get(text.lower(), text)


KEYS: dict[str, tuple[str, Callable[[str], str | None]]] = {
    "parallelism.default": ("parallelism", _positive),
    "table.exec.resource.default-parallelism": ("parallelism", _positive),
    "pipeline.max-parallelism": ("max_parallelism", _positive),
    "execution.buffer-timeout": ("buffer_timeout", _duration),
    "execution.buffer-timeout.interval": ("buffer_timeout", _duration),
    "pipeline.object-reuse": ("object_reuse", _same),
    "pipeline.operator-chaining": ("chaining", _same),
    "pipeline.operator-chaining.enabled": ("chaining", _same),
    "execution.runtime-mode": ("mode", _mode),
    TIME_ZONE: ("time_zone", _same),
    "table.exec.state.ttl": ("state_ttl", _duration),
    "table.exec.sink.not-null-enforcer": ("not_null_enforcer", _lower),
    "table.exec.sink.nested-constraint-enforcer": ("nested_constraint_enforcer", _lower),
    "table.exec.sink.type-length-enforcer": ("type_length_enforcer", _lower),
    "table.exec.source.cdc-events-duplicate": ("cdc_events_duplicate", _lower),
    "table.optimizer.distinct-agg.split.enabled": ("split_distinct", _lower),
    "table.optimizer.distinct-agg.split.bucket-num": ("split_distinct_buckets", _same),
    "table.optimizer.join-reorder-enabled": ("join_reorder", _lower),
    "taskmanager.numberOfTaskSlots": ("slots.number", _same),
    "slot.request.timeout": ("slots.request_timeout", _duration),
    "task.cancellation.timeout": ("cancellation_timeout", _duration),
    "metrics.latency.interval": ("latency_interval", _duration),
    "traces.reporters": ("telemetry.traces", _reporter),
    "execution.checkpointing.interval": ("checkpoint.interval", _duration),
    "execution.checkpointing.mode": ("checkpoint.mode", _lower),
    "execution.checkpointing.timeout": ("checkpoint.timeout", _duration),
    "execution.checkpointing.min-pause": ("checkpoint.min_pause", _duration),
    "execution.checkpointing.max-concurrent-checkpoints": ("checkpoint.max_concurrent", _same),
    "execution.checkpointing.tolerable-failed-checkpoints": ("checkpoint.tolerable_failures", _same),
    "execution.checkpointing.unaligned": ("checkpoint.unaligned", _same),
    "execution.checkpointing.unaligned.enabled": ("checkpoint.unaligned", _same),
    "execution.checkpointing.aligned-checkpoint-timeout": ("checkpoint.alignment_timeout", _duration),
    "execution.checkpointing.alignment-timeout": ("checkpoint.alignment_timeout", _duration),
    "execution.checkpointing.num-retained": ("checkpoint.retain", _same),
    "state.checkpoints.num-retained": ("checkpoint.retain", _same),
    "execution.checkpointing.dir": ("checkpoint.dir", _same),
    "state.checkpoints.dir": ("checkpoint.dir", _same),
    "execution.checkpointing.savepoint-dir": ("checkpoint.savepoints", _same),
    "state.savepoints.dir": ("checkpoint.savepoints", _same),
    "restart-strategy": ("restart.strategy", _strategy),
    "restart-strategy.type": ("restart.strategy", _strategy),
    "restart-strategy.fixed-delay.attempts": ("restart.fixed_delay.attempts", _same),
    "restart-strategy.fixed-delay.delay": ("restart.fixed_delay.delay", _duration),
    "restart-strategy.failure-rate.max-failures-per-interval": ("restart.failure_rate.max_failures", _same),
    "restart-strategy.failure-rate.failure-rate-interval": ("restart.failure_rate.interval", _duration),
    "restart-strategy.failure-rate.delay": ("restart.failure_rate.delay", _duration),
    "restart-strategy.exponential-delay.initial-backoff": ("restart.exponential.initial_delay", _duration),
    "restart-strategy.exponential-delay.max-backoff": ("restart.exponential.max_delay", _duration),
    "restart-strategy.exponential-delay.backoff-multiplier": ("restart.exponential.multiplier", _same),
    "restart-strategy.exponential-delay.reset-backoff-threshold": ("restart.exponential.reset_after", _duration),
    "restart-strategy.exponential-delay.attempts-before-reset-backoff": (
        "restart.exponential.attempts_without_progress",
        _same,
    ),
}
"""Flink's key → flowrun's setting, and how its value is written there (None: as if it were not set)."""

HELD_ANYWAY = (
    "sql-client.", "table.exec.mini-batch.", "table.dml-sync", "table.sql-dialect", "table.optimizer.agg-phase-strategy",
    "execution.checkpointing.incremental", "state.backend.incremental", "execution.target",
    "execution.attached", "table.builtin-catalog-name", "table.builtin-database-name",
)  # fmt: skip
"""Keys whose meaning holds here whatever they say, or that only matter to Flink's own client."""
_FLINK_PREFIXES = (
    "table.", "execution.", "pipeline.", "state.", "restart-strategy", "parallelism.", "task.", "taskmanager.", "jobmanager.", "metrics.",
    "traces.", "python.", "rest.", "security.", "cluster.", "high-availability",
    "fs.", "env.", "web.", "client.", "classloader.", "akka.", "pekko.",
    "io.", "job.", "yarn.", "kubernetes.", "heartbeat.", "slot.", "blob.", "s3.", "scheduler", "jobstore.",
    "historyserver.",
)  # fmt: skip


@dataclass(slots=True)
class ScriptSettings:
    """What SET statements say, in the order of the script."""

    script: ScriptText
    diagnostics: Diagnostics
    values: dict[str, OptionSyntax] = field(default_factory=dict)
    project: YamlMapping | None = None
    """Settings of the script's project, which come behind its own."""

    def set(self, option: OptionSyntax) -> None:
        """SET key = value.

        Raises:
            ExpressionError: no such setting, or a value that is none of it.
        """
        key = option.key
        if any(p.secret for p in self.script.pieces_in(*option.value_span)):
            raise error_at(
                f"a secret cannot be used in '{key}'", option.value_span, "secrets are for options of tables"
            )
        if key in _SPECIAL:
            self._check_special(option)
        elif key.startswith(OWN_PREFIX):
            _check_own(option)
        elif key not in KEYS and not key.startswith(HELD_ANYWAY):
            self._warn_unknown(option)
            return
        self.values[key] = option

    def reset(self, key: str | None) -> None:
        """RESET key, or all."""
        if key is None:
            self.values.clear()
        else:
            self.values.pop(key, None)

    def text(self, key: str) -> str | None:
        """The value of a key."""
        option = self.values.get(key)
        return None if option is None else option.value

    def duration_ms(self, key: str) -> int | None:
        """The value of a duration; None: not set, or 0."""
        text = self.text(key)
        return None if text is None else flink_duration_ms(text) or None

    def packages(self, overrides: Iterable[str]) -> tuple[str, ...]:
        """The packages whose functions may be named, as the setting is now; overrides (`settings.path=value`) win."""
        given = [text.partition("=") for text in overrides]
        texts = [value.strip("[] ") for key, _, value in given if key.strip() == f"settings.{FUNCTIONS}"]
        own = self.text(OWN_PREFIX + FUNCTIONS)
        shared = None if self.project is None else self.project.get(FUNCTIONS)
        texts = texts[-1:] or ([own] if own else []) or ([] if shared is None else [s.text for s in scalars(shared)])
        return listed_packages(texts)

    def _check_special(self, option: OptionSyntax) -> None:
        if option.key in (IDLE_TIMEOUT, WATERMARK_INTERVAL):
            try:
                duration = flink_duration_ms(option.value)
            except ValueError as error:
                message = f"'{option.key}' expects a duration, got '{option.value}'"
                raise error_at(message, option.value_span, str(error)) from None
            if option.key == WATERMARK_INTERVAL and duration <= 0:
                raise error_at(
                    f"'{option.key}' must be positive, got '{option.value}'",
                    option.value_span,
                    "watermarks are always sent; it says after how long without a row the last one has its exact value",
                )

    def _warn_unknown(self, option: OptionSyntax) -> None:
        key, at = option.key, self.script.locate(*option.key_span)
        known = [*KEYS, *_SPECIAL]
        close = near_matches(key, known)
        hint = f"did you mean '{close[0]}'?" if close else None
        if key.startswith(_FLINK_PREFIXES):
            self.diagnostics.warning(f"'{key}' has no effect here", at, hint=hint)
        else:
            own = near_matches(key, own_settings())
            hint = hint or (f"did you mean '{OWN_PREFIX}{own[0]}'?" if own else None)
            self.diagnostics.warning(f"there is no setting '{key}': it has no effect", at, hint=hint)

    # -- the whole -----------------------------------------------------------------------------------------------------------

    def settings(self, values: Mapping[str, OptionSyntax], overrides: Iterable[str]) -> Settings:
        """The settings of the pipeline; what is wrong with them is reported.

        Args:
            values: as they stood at the last INSERT or SELECT.
            overrides: `settings.path=value` texts, which win.
        """
        leaves = self._leaves(values)
        tree: YamlNode = self._tree({("settings", *path.split(".")): leaf for path, (leaf, _) in leaves.items()})
        node = merged_settings(self.project, tree.get(_SETTINGS) if isinstance(tree, YamlMapping) else None)
        if node is not None and isinstance(tree, YamlMapping):
            key = YamlScalar(node.source, node.start, node.start, _SETTINGS, ScalarStyle.PLAIN, _SETTINGS)
            tree = replace(tree, entries=(YamlEntry(key, node),))
        given = list(overrides)
        if given:
            from flowrun.frontend.trees.overrides import apply_overrides  # needs the YAML library

            tree = apply_overrides(tree, given, self.diagnostics)
        node = tree.get(_SETTINGS) if isinstance(tree, YamlMapping) else None
        if node is None:
            return Settings()
        node = _pruned(node)
        found = Diagnostics(self.script.origin)
        section = check_document(node, RecordValue(SETTINGS), found)
        settings = read_settings(section, found)
        names = {path.rpartition(".")[2]: key for path, (_, key) in leaves.items()}
        for one in found.found:
            message, hint = _renamed(one.message, names), _renamed(one.hint or "", names) or None
            self.diagnostics.error(message, one.location, hint=hint)
        return settings

    def _leaves(self, values: Mapping[str, OptionSyntax]) -> dict[str, tuple[YamlScalar, str]]:
        """Settings by path: value with its place, and the key that was given."""
        found: dict[str, tuple[YamlScalar, str]] = {}
        strategy = None
        for key, option in values.items():
            if key.startswith(OWN_PREFIX):
                path, text = key.removeprefix(OWN_PREFIX), option.value
                if path == "dead_letters":  # a text alone is the folder
                    path = "dead_letters.folder"
            elif key in KEYS:
                path, convert = KEYS[key]
                converted = convert(option.value)
                if converted is None:
                    continue
                text = converted
            else:
                continue
            strategy = text if path == "restart.strategy" else strategy
            found[path] = (self._scalar(text, option.value_span), key)
        return {
            (p if len(parts) < 3 else f"restart.{parts[2]}"): leaf
            for p, leaf in found.items()
            if len(parts := p.split(".")) < 3 or parts[1] == strategy
        }

    def _scalar(self, text: str, span: tuple[int, int]) -> YamlScalar:
        return YamlScalar(self.script, span[0], span[1], text, ScalarStyle.PLAIN, text)

    def _tree(self, leaves: Mapping[tuple[str, ...], YamlScalar]) -> YamlMapping:
        entries: list[YamlEntry] = []
        for head in dict.fromkeys(path[0] for path in leaves):
            below = {path[1:]: leaf for path, leaf in leaves.items() if path[0] == head}
            first = next(iter(below.values()))
            value: YamlNode = first if () in below else self._tree(below)
            entries.append(YamlEntry(replace(first, text=head, written=head), value))
        place = next(iter(leaves.values()), None)
        start, end = (place.start, place.end) if place is not None else (0, 1)
        return YamlMapping(self.script, start, end, tuple(entries))


def _check_own(option: OptionSyntax) -> None:
    path = option.key.removeprefix(OWN_PREFIX)
    known = own_settings()
    if path not in known:
        close = near_matches(path, known)
        hint = (
            f"did you mean '{OWN_PREFIX}{close[0]}'?" if close else "known: " + ", ".join(OWN_PREFIX + k for k in known)
        )
        raise error_at(f"there is no setting '{option.key}'", option.key_span, hint)


def own_settings() -> tuple[str, ...]:
    """Paths of all settings of a pipeline, as they are called after `flowrun.`."""
    return tuple(_paths(SETTINGS, ""))


def _paths(spec: RecordSpec, prefix: str) -> Iterable[str]:
    for key in spec.keys:
        match key.value:
            case MapValue():
                continue  # of names that only a document has
            case RecordValue(record=record, short=short):
                if short is not None:
                    yield prefix + key.name
                yield from _paths(record, f"{prefix}{key.name}.")
            case VariantValue(tag=tag, variants=variants):
                yield f"{prefix}{key.name}.{tag}"
                names = dict.fromkeys(k.name for _, record in variants for k in record.keys)
                yield from (f"{prefix}{key.name}.{n}" for n in names)
            case _:
                yield prefix + key.name


def _pruned(node: YamlNode) -> YamlNode:
    """Without what Flink ignores: options of checkpoints that are not taken, of a restart strategy that is not chosen."""
    if not isinstance(node, YamlMapping):
        return node
    kept: list[YamlEntry] = []
    for entry in node.entries:
        value = entry.value
        if isinstance(value, YamlMapping):
            if entry.name == "checkpoint" and _off(value.get("interval")):
                continue
            if entry.name == "restart" and value.get("strategy") is None:
                continue
            if entry.name == "checkpoint" and not _is_true(value.get("unaligned")):
                value = replace(value, entries=tuple(e for e in value.entries if e.name != "alignment_timeout"))
        kept.append(YamlEntry(entry.key, value))
    return replace(node, entries=tuple(kept))


def _off(interval: YamlNode | None) -> bool:
    return interval is None or (isinstance(interval, YamlScalar) and interval.text.strip() in ("0", "0ms", "0s"))


def _is_true(node: YamlNode | None) -> bool:
    return isinstance(node, YamlScalar) and node.text.strip().lower() == "true"


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """A message with the keys that were given instead of the names that the specification has for them."""
    for name, key in names.items():
        text = text.replace(f"'{name}'", f"'{key}'")
    return text
