"""Names of other systems and what Flink calls the same: what hints say of an unknown type or function.

One table for PostgreSQL, DuckDB, Spark, MySQL, SQL Server, Oracle, Arrow and pandas names; near matches of spelling come after it.
"""

from __future__ import annotations

from collections.abc import Iterable

from flowrun.errors import did_you_mean

_TYPES = {
    "BIGINT": "INT8 INT64 LONG BIGSERIAL UINT32 HUGEINT",
    "INT": "INT4 INT32 SERIAL UINT16 MEDIUMINT",
    "SMALLINT": "INT2 INT16 SHORT UINT8",
    "TINYINT": "INT1 BYTE",
    "DOUBLE": "FLOAT8 FLOAT64 NUMBER",
    "FLOAT": "FLOAT4 FLOAT32 REAL",
    "DECIMAL(20, 0)": "UINT64 UBIGINT",
    "DECIMAL(19, 4)": "MONEY",
    "STRING": "TEXT STR VARCHAR2 NVARCHAR CLOB UUID JSON JSONB ENUM UTF8 LARGE_STRING OBJECT VARIANT CITEXT",
    "BYTES": "BLOB BYTEA",
    "BOOLEAN": "BIT",
    "TIMESTAMP(3)": "DATETIME DATETIME64 TIMESTAMP_MS TIMESTAMP_NTZ TIMESTAMPNTZ",
    "TIMESTAMP(6)": "DATETIME2 TIMESTAMP_US",
    "TIMESTAMP_LTZ(3)": "TIMESTAMPTZ TIMESTAMP_TZ DATETIMEOFFSET",
    "DATE": "DATE32 DATE64",
    "TIME": "TIME32 TIME64",
    "ARRAY<type>": "LIST",
    "ROW<name type, …>": "STRUCT RECORD TUPLE",
    "MAP<key, value>": "HSTORE DICT",
}
_FUNCTIONS = {
    "LISTAGG(value, separator)": "STRING_AGG GROUP_CONCAT WM_CONCAT",
    "FLOOR(ts TO HOUR)": "DATE_TRUNC TIME_TRUNC TIMESTAMP_TRUNC DATETIME_TRUNC TRUNC_DATE DATE_BIN TIME_BUCKET",
    "DATE_FORMAT(ts, 'yyyy-MM-dd')": "TO_CHAR STRFTIME FORMAT_DATETIME FORMAT_TIMESTAMP FORMAT_DATE",
    "COALESCE(a, b)": "NVL ISNULL ZEROIFNULL",
    "IF(a IS NOT NULL, b, c)": "NVL2",
    "IF(condition, a, b)": "IIF",
    "POSITION('x' IN string)": "STRPOS CHARINDEX FIND",
    "TIMESTAMPDIFF(DAY, a, b)": "DATEDIFF DATE_DIFF DAYS_BETWEEN AGE",
    "ts + INTERVAL '1' DAY": "DATEADD DATE_ADD ADDDATE ADD_MONTHS TIMESTAMP_ADD",
    "ts - INTERVAL '1' DAY": "DATE_SUB SUBDATE TIMESTAMP_SUB",
    "MIN(CASE WHEN condition THEN 1 ELSE 0 END) = 1": "BOOL_AND EVERY BITAND_AGG LOGICAL_AND",
    "MAX(CASE WHEN condition THEN 1 ELSE 0 END) = 1": "BOOL_OR LOGICAL_OR",
    "COUNT(*) FILTER (WHERE condition)": "COUNT_IF COUNTIF SUM_IF SUMIF",
    "CHAR_LENGTH(string)": "LEN STRLEN DATALENGTH",
    "TO_TIMESTAMP_LTZ(epoch_ms, 3)": "EPOCH_MS FROM_UNIXTIME_MS TIMESTAMP_MILLIS FROM_EPOCH_MILLISECONDS",
    "EXTRACT(HOUR FROM ts)": "DATE_PART DATEPART",
    "CURRENT_TIMESTAMP": "GETDATE SYSDATE SYSTIMESTAMP",
    "COLLECT(value)": "COLLECT_LIST COLLECT_SET",
    "ARRAY_AGG(value)": "LIST_AGG LIST GROUP_ARRAY GROUPARRAY ARRAYAGG",
    "APPROX_COUNT_DISTINCT(value)": "APPROX_DISTINCT HLL_COUNT UNIQ NDV",
    "PERCENTILE(value, 0.5)": "MEDIAN QUANTILE QUANTILE_CONT PERCENTILE_CONT PERCENTILE_DISC APPROX_QUANTILE",
    "CROSS JOIN UNNEST(array) AS t (element)": "EXPLODE FLATTEN LATERAL_VIEW GENERATE_SUBSCRIPTS",
    "JSON_VALUE(json, '$.path')": "JSON_EXTRACT JSON_EXTRACT_STRING GET_JSON_OBJECT JSON_EXTRACT_PATH_TEXT JSON_EXTRACT_SCALAR",
    "LAST_VALUE(value)": "ANY_VALUE_LAST ARG_MAX MAX_BY LAST",
    "FIRST_VALUE(value)": "ARG_MIN MIN_BY FIRST ANY",
    "TRY_CAST(value AS type)": "SAFE_CAST TRY_CONVERT TRY_TO_NUMBER",
    "CAST(value AS type)": "CONVERT TO_NUMBER TO_INTEGER TOSTRING",
    "SPLIT_INDEX(string, separator, 0)": "SPLIT_PART SUBSTRING_INDEX",
    "PROCTIME()": "PROCESSING_TIME",
}


def _by_name(table: dict[str, str]) -> dict[str, str]:
    return {name: ours for ours, names in table.items() for name in names.split()}


FOREIGN_TYPES = _by_name(_TYPES)
"""Upper-case name of a type elsewhere → how it is written here."""
FOREIGN_FUNCTIONS = _by_name(_FUNCTIONS)
"""Upper-case name of a function elsewhere → how it is written here."""


def type_hint(name: str, known: Iterable[str]) -> str | None:
    """What to write for an unknown type.

    >>> type_hint("int64", ()), type_hint("STRNG", ("STRING",))
    ('write BIGINT', "did you mean 'STRING'?")
    """
    return _hint(FOREIGN_TYPES, name, known)


def function_hint(name: str, known: Iterable[str]) -> str | None:
    """What to write for an unknown function.

    >>> function_hint("string_agg", ())
    'write LISTAGG(value, separator)'
    """
    return _hint(FOREIGN_FUNCTIONS, name, [k for k in known if not k.startswith("$")])


def _hint(table: dict[str, str], name: str, known: Iterable[str]) -> str | None:
    found = table.get(name.upper())
    return f"write {found}" if found is not None else did_you_mean(name.upper(), known)
