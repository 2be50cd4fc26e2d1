"""The statements of scripts as frozen values. Queries and expressions in them are still text.

Spans are first and one-past-last code point in the script.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TypeAlias

from flowrun.core.record import record
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.script.statement_reader import Slice
from flowrun.frontend.sql.spans import Span


@record
class OptionSyntax:
    """`'key' = 'value'`."""

    key: str
    key_span: Span
    value: str
    value_span: Span


class ColumnKind(Enum):
    """Where the values of a column come from."""

    PHYSICAL = "physical"
    COMPUTED = "computed"
    METADATA = "metadata"


@record
class ColumnSyntax:
    """A column of CREATE TABLE.

    Attributes:
        type: of physical and metadata columns.
        expression: of computed columns.
        key: of metadata columns: the key after FROM, else None.
        virtual: of metadata columns: not written.
        primary: PRIMARY KEY NOT ENFORCED stands at the column.
    """

    name: Name
    kind: ColumnKind
    span: Span
    type: Slice | None = None
    nullable: bool = True
    expression: Slice | None = None
    key: Name | None = None
    virtual: bool = False
    primary: bool = False
    comment: str | None = None


@record
class WatermarkSyntax:
    """WATERMARK FOR column AS expression."""

    column: tuple[Name, ...]
    expression: Slice
    span: Span


@record
class PrimaryKeySyntax:
    """PRIMARY KEY (columns) NOT ENFORCED."""

    columns: tuple[Name, ...]
    span: Span


@record
class DistributionSyntax:
    """DISTRIBUTED BY (columns) INTO buckets BUCKETS."""

    columns: tuple[Name, ...]
    buckets: int | None


class LikeFeature(Enum):
    """Parts of a table that LIKE takes over."""

    ALL = "ALL"
    CONSTRAINTS = "CONSTRAINTS"
    DISTRIBUTION = "DISTRIBUTION"
    GENERATED = "GENERATED"
    METADATA = "METADATA"
    OPTIONS = "OPTIONS"
    PARTITIONS = "PARTITIONS"
    WATERMARKS = "WATERMARKS"


class LikeChoice(Enum):
    """What LIKE does with a part: take it over, leave it out, or take it over unless the new table has its own."""

    INCLUDING = "INCLUDING"
    EXCLUDING = "EXCLUDING"
    OVERWRITING = "OVERWRITING"


@record
class LikeSyntax:
    """LIKE table (choices)."""

    table: tuple[Name, ...]
    choices: tuple[tuple[LikeFeature, LikeChoice], ...]

    def choice(self, feature: LikeFeature) -> LikeChoice:
        """What is done with a part: as said of it, as said of ALL, else Flink's default."""
        said = dict(self.choices)
        default = LikeChoice.OVERWRITING if feature is LikeFeature.OPTIONS else LikeChoice.INCLUDING
        return said.get(feature, said.get(LikeFeature.ALL, default))


@record
class CreateTable:
    """CREATE TABLE; `query` with AS."""

    name: tuple[Name, ...]
    columns: tuple[ColumnSyntax, ...] = ()
    watermark: WatermarkSyntax | None = None
    primary_key: PrimaryKeySyntax | None = None
    distribution: DistributionSyntax | None = None
    partitions: tuple[Name, ...] = ()
    options: tuple[OptionSyntax, ...] = ()
    like: LikeSyntax | None = None
    query: Slice | None = None
    if_not_exists: bool = False
    comment: str | None = None
    temporary: bool = False


@record
class CreateCatalog:
    """CREATE CATALOG name COMMENT comment WITH (options)."""

    name: Name
    options: tuple[OptionSyntax, ...] = ()
    if_not_exists: bool = False
    comment: str | None = None


@record
class CreateView:
    """CREATE VIEW name (columns) AS query."""

    name: tuple[Name, ...]
    query: Slice
    columns: tuple[Name, ...] = ()
    if_not_exists: bool = False
    replace: bool = False
    temporary: bool = False


@record
class CreateFunction:
    """CREATE FUNCTION name AS 'reference' LANGUAGE language."""

    name: tuple[Name, ...]
    reference: str
    reference_span: Span
    language: str
    language_span: Span
    if_not_exists: bool = False


class ConflictAction(Enum):
    """What ON CONFLICT does with rows of one primary key that are different rows of the query."""

    ERROR = "ERROR"
    NOTHING = "NOTHING"
    DEDUPLICATE = "DEDUPLICATE"


@record
class ConflictSyntax:
    """ON CONFLICT DO action."""

    action: ConflictAction
    span: Span


@record
class Insert:
    """INSERT INTO table PARTITION (partition) (columns) query ON CONFLICT conflict; or INSERT OVERWRITE."""

    table: tuple[Name, ...]
    query: Slice
    columns: tuple[Name, ...] | None = None
    partition: tuple[tuple[Name, Slice], ...] = ()
    hints: tuple[str, ...] = ()
    conflict: ConflictSyntax | None = None
    overwrite: bool = False


@record
class Select:
    """A query by itself, whose rows are printed."""

    query: Slice


@record
class Explain:
    """EXPLAIN statement."""

    statement: Insert | Select


@record
class SetOption:
    """SET key = value; without a key: show what is set."""

    option: OptionSyntax | None


@record
class ResetOption:
    """RESET key; without a key: all."""

    key: str | None
    span: Span


class ObjectKind(Enum):
    """What a name stands for."""

    TABLE = "table"
    VIEW = "view"
    FUNCTION = "function"
    CATALOG = "catalog"


@record
class Drop:
    """DROP kind name."""

    kind: ObjectKind
    name: tuple[Name, ...]
    if_exists: bool


@record
class Describe:
    """DESCRIBE table."""

    name: tuple[Name, ...]


class Listing(Enum):
    """What SHOW lists."""

    TABLES = "TABLES"
    VIEWS = "VIEWS"
    FUNCTIONS = "FUNCTIONS"
    USER_FUNCTIONS = "USER FUNCTIONS"
    CATALOGS = "CATALOGS"
    DATABASES = "DATABASES"
    CURRENT_CATALOG = "CURRENT CATALOG"
    CURRENT_DATABASE = "CURRENT DATABASE"
    MODULES = "MODULES"
    JARS = "JARS"


@record
class NameFilter:
    """[NOT] LIKE | ILIKE 'pattern' behind SHOW."""

    pattern: str
    negated: bool = False
    any_case: bool = False


@record
class Show:
    """SHOW TABLES and the like; `scope` is the catalog or database behind FROM or IN."""

    listing: Listing
    chosen: NameFilter | None = None
    scope: tuple[Name, ...] = ()


@record
class ShowColumns:
    """SHOW COLUMNS FROM table."""

    name: tuple[Name, ...]
    chosen: NameFilter | None = None


@record
class ShowCreate:
    """SHOW CREATE TABLE | VIEW | CATALOG name."""

    kind: ObjectKind
    name: tuple[Name, ...]


@record
class DescribeCatalog:
    """DESCRIBE CATALOG name."""

    name: Name


@record
class Use:
    """USE CATALOG name; without CATALOG: USE catalog.database or USE database."""

    path: tuple[Name, ...]
    catalog: bool = False


@record
class AddJar:
    """ADD JAR 'file'."""

    span: Span


Statement: TypeAlias = (
    CreateTable | CreateView | CreateFunction | CreateCatalog | Insert | Select | Explain | SetOption | ResetOption | Drop | Describe
    | DescribeCatalog | Show | ShowColumns | ShowCreate | Use | AddJar
)  # fmt: skip


@record
class ReadStatement:
    """A statement with its place; `in_set`: it stands between BEGIN and END of a statement set, `explained` if that is only explained."""

    statement: Statement
    span: Span
    in_set: bool = False
    explained: bool = field(default=False)
