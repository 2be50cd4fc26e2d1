"""The OpenAPI document of the REST API, made of the table of routes and the types of their bodies and answers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from flowrun import __version__
from flowrun.rest.refusals import Failure
from flowrun.rest.route import Route

_WHAT: dict[int, str] = {
    400: "The request is not what it must be.",
    401: "There is no token.",
    403: "The token, the host or the origin is wrong.",
    404: "There is no such job or part of it.",
    405: "The path does not take this method.",
    409: "The job refuses, and says why.",
    411: "The body has no length.",
    413: "The body is too large.",
    415: "The body is no JSON.",
    422: "The text has errors, which are listed.",
    500: "flowrun itself failed.",
    503: "The job's process cannot be reached now.",
}
_REFERENCE = "#/components/schemas/{name}"


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """OpenAPI 3.1 of these routes."""
    kinds = [
        t for route in routes for t in (route.gives, route.takes) if isinstance(t, type) and t not in (dict, str, bytes)
    ]
    kinds = list(dict.fromkeys([*kinds, Failure]))
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    known = dict(zip(kinds, schemas, strict=True))
    documented = {kind.__name__: _field_meanings(kind) for kind in kinds}
    taken = {r.takes.__name__: getattr(r.takes, "further", {}) for r in routes if r.takes is not None}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "flowrun",
            "version": __version__,
            "description": "Running jobs of flowrun: see them, and change them while they run.",
        },
        "paths": paths,
        "components": {
            "schemas": {name: _described(schema, taken, documented.get(name)) for name, schema in components.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: Route, known: dict[type, Any]) -> dict[str, Any]:
    answers: dict[str, Any] = {str(route.status): {"description": route.text, "content": _content(route, known)}}
    for status in sorted({*route.fails, *_always(route)}):
        answers[str(status)] = {
            "description": _WHAT[status],
            "content": {"application/json": {"schema": known[Failure]}},
        }
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{route.path.replace('/', '_').replace('{', '').replace('}', '')}",
        "summary": route.text,
        "responses": answers,
    }
    if route.is_open:
        operation["security"] = []
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in route.names
    ]
    parameters += [
        {
            "name": p.name,
            "in": "query",
            "description": p.text,
            "schema": {"type": "integer", "minimum": 0, "maximum": 10**15 - 1, "default": p.default},
        }
        for p in route.query
    ]
    if parameters:
        operation["parameters"] = parameters
    if route.takes is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": known[route.takes]}},
        }
    return operation


def _content(route: Route, known: dict[type, Any]) -> dict[str, Any]:
    schema = {"type": "string"} if route.gives in (str, bytes) else known.get(route.gives, {"type": "object"})
    return {route.media_type: {"schema": schema}}


def _always(route: Route) -> tuple[int, ...]:
    """Statuses of failures that every request of the route may have."""
    found = (400, 403, 405, 500) if route.is_open else (400, 401, 403, 405, 500)
    return found if route.takes is None else (*found, 411, 413, 415)


def _described(
    schema: dict[str, Any], taken: Mapping[str, Mapping[str, Any]], meanings: Mapping[str, str] | None
) -> dict[str, Any]:
    """A schema with what its docstring says of it and of its fields. Answers have all of their fields, and no others."""
    summary, _, attributes = inspect.cleandoc(schema.get("description", "")).partition("\n\n")
    described = {**schema, "description": " ".join(summary.split())} if summary else dict(schema)
    if "properties" not in schema:
        return described
    properties = {name: dict(part) for name, part in schema["properties"].items()}
    for name, meaning in (_attributes(attributes) if meanings is None else meanings).items():
        if name in properties:
            properties[name]["description"] = meaning
    described |= {"properties": properties, "additionalProperties": False}
    if schema["title"] in taken:
        return {**described, **taken[schema["title"]]}
    return {**described, "required": list(properties)}


def _field_meanings(kind: type) -> dict[str, str]:
    """What the docstrings of a record, and of those that it is made of, say of its fields."""
    found: dict[str, str] = {}
    for known in reversed(kind.__mro__):
        found |= _attributes(inspect.cleandoc(known.__dict__.get("__doc__") or ""))
    return found


def _attributes(text: str) -> dict[str, str]:
    r"""Name → meaning, of the section `Attributes` of a docstring.

    >>> _attributes("Attributes:\n    a: one\n        thing.\n    b: another.")
    {'a': 'one thing.', 'b': 'another.'}
    """
    found: dict[str, str] = {}
    name = ""
    for line in text.partition("Attributes:\n")[2].splitlines():
        head, colon, meaning = line.strip().partition(": ")
        if colon and head.isidentifier() and line.startswith("    ") and not line.startswith("     "):
            name = head
            found[name] = meaning.strip()
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found
