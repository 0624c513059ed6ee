"""The JSON schema (2020-12) of a report, made from its dataclasses."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

from leakhunter.findings import SCHEMA_VERSION, Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema() -> dict[str, Any]:
    """The schema. Keys that it does not know are allowed: newer reports have them."""
    parts: dict[str, Any] = {}
    _refer(Report, parts)
    root = parts.pop(Report.__name__)
    root["properties"]["schema"] = {"const": SCHEMA_VERSION}
    # A reader looks at it before all else.
    root["required"].append("schema")
    return {"$schema": DIALECT, "title": "leakhunter report", **root, "$defs": dict(sorted(parts.items()))}


def _refer(kind: type, parts: dict[str, Any]) -> dict[str, Any]:
    """A reference to the definition of a dataclass, which is added to ``parts`` unless it is there."""
    if kind.__name__ not in parts:
        definition = parts[kind.__name__] = {}
        hints = typing.get_type_hints(kind)
        fields = dataclasses.fields(kind)
        definition["description"] = _sentence(kind.__doc__ or "")
        definition["type"] = "object"
        definition["required"] = [field.name for field in fields if _is_required(field)]
        definition["properties"] = {field.name: _of(hints[field.name], parts) for field in fields}
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _sentence(doc: str) -> str:
    return re.sub(r"\s+", " ", doc.split("\n\n")[0]).replace("``", "`").strip()


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _of(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field's type."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _refer(kind, parts)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [{"type": "null"} if one is type(None) else _of(one, parts) for one in arguments]}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _of(arguments[0], parts)}
    if origin is tuple:
        items = [_of(one, parts) for one in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(arguments[1], parts)}
    return {}
