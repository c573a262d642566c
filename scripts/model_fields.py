"""Fields of the pydantic models that DeepSpeed reads sections with, for pydantic 2 and for
DeepSpeed on pydantic 1.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

SIMPLE = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    Path: "path",
    dict: "dict",
    list: "list",
    tuple: "list",
}
BOUNDS = ("ge", "gt", "le", "lt")


class Models:
    """Models by section that is read with them, learnt by watching models being built."""

    def __init__(self, base: Any) -> None:
        self._base = base
        self._by_path: dict[str, Any] = {}
        self._watched: tuple[str, str] | None = None
        self.generation = 2 if hasattr(base, "model_fields") else 1

    @classmethod
    def watch(cls) -> Models:
        """Watch the construction of every model of DeepSpeed's from here on."""
        from deepspeed.runtime.config_utils import DeepSpeedConfigModel as Base

        models = cls(Base)
        build = Base.__init__

        def watched(self: Any, strict: bool = False, **data: Any) -> None:
            models.note(type(self), data)
            build(self, strict, **data)

        Base.__init__ = watched
        return models

    @contextmanager
    def seen(self, path: str, probe: str) -> Iterator[None]:
        """Whatever model is built with a field named `probe` reads the section at `path`."""
        self._watched = (path, probe)
        try:
            yield
        finally:
            self._watched = None

    def note(self, cls: Any, data: dict[str, Any]) -> None:
        """A model of class `cls` is being built from `data`."""
        if self._watched is None:
            return
        path, probe = self._watched
        if probe in data:
            self._by_path[path] = cls
        elif (
            isinstance(data.get(path.rpartition("/")[2]), dict)
            and probe in data[path.rpartition("/")[2]]
        ):
            # A model of models (the monitors'), whose fields are built without a call that could be
            # watched.
            inner = _field_type(cls, path.rpartition("/")[2])
            if inner is not None:
                self._by_path[path] = inner

    def has(self, path: str) -> bool:
        """Return whether the section at `path` is read with a model."""
        return path in self._by_path

    def sections(self) -> dict[str, Any]:
        """JSON pointer to fields, of the models seen and of those within them."""
        done: dict[str, Any] = {}
        todo = list(self._by_path.items())
        while todo:
            path, cls = todo.pop()
            if path in done:
                continue
            reader = _Reader(path, self._base)
            done[path] = reader.section(cls)
            todo.extend(reader.nested)
        return done


def _field_type(cls: Any, name: str) -> Any:
    fields = getattr(cls, "model_fields", None) or cls.__fields__
    field = fields.get(name)
    annotation = (
        None
        if field is None
        else getattr(field, "annotation", None) or getattr(field, "type_", None)
    )
    return annotation if inspect.isclass(annotation) and hasattr(annotation, "__fields__") else None


class _Reader:
    """Describes one model; `nested` are the models of its fields, with their pointers."""

    def __init__(self, path: str, base: Any) -> None:
        self._path = path
        self._base = base
        self.nested: list[tuple[str, Any]] = []

    def section(self, cls: Any) -> dict[str, Any]:
        """Return what is known of `cls`."""
        fields = cls.model_fields if hasattr(cls, "model_fields") else cls.__fields__
        config = (
            cls.model_config.get("extra") if hasattr(cls, "model_config") else cls.__config__.extra
        )
        return {
            "kind": "model",
            "extra": "forbidden"
            if str(getattr(config, "value", config)) == "forbid"
            else "ignored",
            "checks": sorted(_checks(cls)),
            "keys": {name: self._key(name, field, cls) for name, field in fields.items()},
        }

    def _key(self, name: str, field: Any, cls: Any) -> dict[str, Any]:
        alias = getattr(field, "alias", None) or name
        key: dict[str, Any] = {} if alias == name else {"alias": alias}
        # pydantic 1 infers it
        hint = typing.get_type_hints(cls).get(name, getattr(field, "outer_type_", Any))
        inner, optional = _without_none(hint)
        key["type"] = self._type(inner, alias)
        if optional or getattr(
            field, "allow_none", False
        ):  # pydantic 1 takes null where the default is null
            key["optional"] = True
        default = _default(field)
        if default is not None:
            key["default"] = default
        key.update(_bounds(field))
        deprecated = _deprecated(field)
        if deprecated is not None:
            key["deprecated"] = deprecated
        return key

    def _type(self, hint: Any, name: str) -> Any:
        """The type as JSON: a name, or a mapping of one entry whose key says what it is of."""
        origin, parts = get_origin(hint), get_args(hint)
        if origin is Literal:
            return {"literal": list(parts)}
        if origin in (Union, types.UnionType):
            return {"union": [self._type(part, name) for part in parts]}
        if origin in (list, tuple):
            return {"list": self._type(parts[0], name)} if parts and origin is list else "list"
        if origin is dict:
            return "dict"
        if inspect.isclass(hint) and issubclass(hint, Enum):
            kind = "int" if issubclass(hint, int) else "str"
            return {"enum": sorted({member.value for member in hint}), "of": kind}
        if inspect.isclass(hint) and issubclass(hint, self._base):
            path = f"{self._path}/{name}"
            self.nested.append((path, hint))
            return {"section": path}
        if inspect.isclass(hint) and hint.__module__ == "torch" and hint.__name__ == "dtype":
            return "dtype"
        return SIMPLE.get(hint, "any")


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, types.UnionType):
        parts = tuple(part for part in get_args(hint) if part is not type(None))
        if len(parts) < len(get_args(hint)):
            return (parts[0] if len(parts) == 1 else Union[parts]), True  # noqa: UP007
    return hint, False


def _default(field: Any) -> Any:
    factory = getattr(field, "default_factory", None)
    value = factory() if factory else getattr(field, "default", None)
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, (bool, str, list)):
        return value
    if isinstance(value, int):
        return int(value)
    return value if isinstance(value, float) else None


def _bounds(field: Any) -> dict[str, Any]:
    info = getattr(field, "field_info", None)
    if info is not None:  # pydantic 1
        return {bound: getattr(info, bound) for bound in BOUNDS if getattr(info, bound) is not None}
    return {
        bound: getattr(constraint, bound)
        for constraint in getattr(field, "metadata", ())
        for bound in BOUNDS
        if getattr(constraint, bound, None) is not None
    }


def _deprecated(field: Any) -> dict[str, Any] | None:
    """The field that replaces a deprecated one; `moved` where DeepSpeed takes the value over."""
    info = getattr(field, "field_info", None)
    extra = (info.extra if info is not None else getattr(field, "json_schema_extra", None)) or {}
    if not extra.get("deprecated"):
        return None
    return {"by": extra.get("new_param", ""), "moved": bool(extra.get("set_new_param", True))}


def _checks(cls: Any) -> set[str]:
    """Names of the model's own validators: what it checks beyond the types."""
    decorators = getattr(cls, "__pydantic_decorators__", None)
    if decorators is not None:
        return {*decorators.field_validators, *decorators.model_validators}
    of_fields = {
        validator.func.__name__
        for validators in cls.__validators__.values()
        for validator in validators
    }
    after = {check.__name__ for _, check in cls.__post_root_validators__}
    return of_fields | after | {check.__name__ for check in cls.__pre_root_validators__}
