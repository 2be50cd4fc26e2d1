"""Tables of the document: connector, format and options, each checked at its place."""

from __future__ import annotations

from flowrun.api.connector import Connector
from flowrun.connectors.registry import connector_named, connector_names
from flowrun.core.schema import Schema
from flowrun.errors import OptionError, did_you_mean, near_matches
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.columns import find_column
from flowrun.frontend.yaml.tables.options import GivenOptions, flatten_options
from flowrun.plan.nodes import TableReference
from flowrun.plan.tables import (
    VALUE_FORMAT,
    TableRole,
    check_format,
    declared_options,
    learn_secrets_of_options,
    parse_table_options,
    secret_options,
    usable_connector,
)


class TableReader:
    """Turns the table part of a source or sink into a reference, reporting what is wrong."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics

    def read(
        self, name: str, section: Section, role: TableRole, partition_keys: tuple[str, ...]
    ) -> tuple[TableReference, GivenOptions] | None:
        """The table as declared, its options checked one by one; None if anything is wrong, which is reported."""
        given = flatten_options(section, self._diagnostics)
        connector_name = section.text("connector")
        if connector_name is None:
            return None
        format_name = section.text("format")
        if format_name is None and given is not None and VALUE_FORMAT in given.values:
            format_name = str(given.values[VALUE_FORMAT])
        if given is not None:
            learn_secrets_of_options((), given.values)  # of connectors, and by names, that nobody knows, too
        try:
            connector = usable_connector(connector_name, role)
        except OptionError as error:
            self._diagnostics.error(error.message, section.value_at("connector"), hint=error.hint)
            return None
        try:
            check_format(connector, format_name)
        except OptionError as error:
            at = section.value_at("format") if section.has("format") else section.at("connector")
            if given is not None:
                at = given.places.get(VALUE_FORMAT, at)
            self._diagnostics.error(error.message, at, hint=error.hint)
            return None
        if given is None:
            return None
        declared = declared_options(connector, format_name, role, given.values)
        learn_secrets_of_options(declared, given.values)
        _, problems = parse_table_options(
            connector, format_name, role, _asked_or_read(connector, format_name, role, given)
        )
        for problem in problems:
            self._report_option(problem, given, section)
        if problems:
            return None
        secrets = given.secrets | secret_options(declared, given.values)
        table = TableReference(
            name=name,
            connector=connector_name,
            options=dict(given.values),
            format=format_name,
            partition_keys=partition_keys,
            primary_key=tuple(s.text for s in section.scalars("primary_key")),
            secret_options=frozenset(secrets),
        )
        return table, given

    def check_primary_key(self, section: Section, schema: Schema | None) -> bool:
        """Whether the columns of `primary_key` are there, once each; what is wrong is reported."""
        if schema is None:
            return not section.broken("primary_key")
        keys = section.scalars("primary_key")
        found = [find_column(schema, key, "the schema", self._diagnostics) for key in keys]
        for position, key in enumerate(keys):
            if key.text in [k.text for k in keys[:position]]:
                self._diagnostics.error(f"'{key.text}' is in the primary key twice", key.location)
        return None not in found and len(set(found)) == len(found) and not section.broken("primary_key")

    def check_partitions(self, section: Section) -> None:
        """Report `partition_by` on a connector that has no partitions."""
        name = section.text("connector")
        if name in connector_names() and section.has("partition_by") and not connector_named(name).partitions:
            self._diagnostics.error(
                f"connector '{name}' does not keep partitions apart",
                section.at("partition_by"),
                hint="remove 'partition_by'",
            )

    def _report_option(self, problem: OptionError, given: GivenOptions, section: Section) -> None:
        key = problem.option
        near_key = near_matches(key, [k.name for k in section.spec.keys])
        if key in given.keys and near_key and not (problem.hint or "").startswith("did you mean"):
            problem = OptionError(key, problem.message, hint=did_you_mean(key, near_key))
        given.report(problem, section, self._diagnostics)


def _asked_or_read(
    connector: Connector, format_name: str | None, role: TableRole, given: GivenOptions
) -> dict[str, object]:
    """The options of a source without those of its other role: rows of a source may be read, or asked for by a lookup join."""
    if role is not TableRole.SOURCE or connector.create_lookup is None:
        return dict(given.values)
    own = declared_options(connector, format_name, role)
    lookup = declared_options(connector, format_name, TableRole.LOOKUP)
    return {
        k: v for k, v in given.values.items() if any(o.matches(k) for o in own) or not any(o.matches(k) for o in lookup)
    }
