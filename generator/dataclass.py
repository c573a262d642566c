"""`dataclass` of the standard library, ten times as fast for a class that is frozen and has slots.

Before Python 3.13 the standard library compiles six methods of each such class, half a millisecond
in all, and changes the class method by method, which is a fifth of a command's time with two
hundred classes. Here a class is made once, with all its methods, and `__init__` alone is compiled,
for a class of which there are several objects.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, **options: Any) -> Any:
        """Decorate a class as `dataclasses.dataclass` does."""
        if not (frozen and slots) or options.keys() - {"kw_only", "eq"}:
            return dataclasses.dataclass(frozen=frozen, slots=slots, **options)

        def made(plain: type) -> type:
            fields = _fields(plain, kw_only=options.get("kw_only", False))
            return _with_slots(plain, fields, compared=options.get("eq", True))

        return made


#: What the standard library says of a frozen class with slots; classes that derive from it ask.
_PARAMETERS: Any = vars(dataclasses.make_dataclass("_Frozen", [], frozen=True))[
    "__dataclass_params__"
]
#: What it calls a field that is neither of the class alone nor of `__init__` alone.
_ORDINARY: Any = vars(dataclasses)["_FIELD"]


def _fields(plain: type, *, kw_only: bool) -> dict[str, Any]:
    """Return the fields of a class by name: those of its bases, then its own."""
    found: dict[str, Any] = {}
    for base in plain.__mro__[:0:-1]:
        found |= getattr(base, "__dataclass_fields__", {})

    for name, kind in plain.__annotations__.items():
        if "ClassVar" in kind:
            continue
        default = getattr(plain, name, dataclasses.MISSING)
        if isinstance(default, MemberDescriptorType):  # the slot of a base
            default = dataclasses.MISSING
        own = isinstance(default, dataclasses.Field)
        field: Any = default if own else dataclasses.field(default=default)
        if field.default.__class__.__hash__ is None:
            raise ValueError(f"{name} of {plain.__name__} needs a default_factory")
        field.name, field.type = name, kind
        field._field_type = _ORDINARY
        if field.kw_only is dataclasses.MISSING:
            field.kw_only = kw_only
        found[name] = field
    return found


def _with_slots(plain: type, fields: dict[str, Any], *, compared: bool) -> type:
    """Make the class anew, with slots and with all methods that it doesn't write itself."""
    inherited = {name for base in plain.__mro__[1:] for name in getattr(base, "__slots__", ())}
    left_out = {*fields, "__dict__", "__weakref__"}
    body = {name: value for name, value in plain.__dict__.items() if name not in left_out}
    init = _Init(fields)
    body = {
        **_methods(tuple(fields.values()), init, compared=compared),
        **body,
        "__slots__": tuple(name for name in fields if name not in inherited),
        "__dataclass_fields__": fields,
        "__dataclass_params__": _PARAMETERS,
        "__match_args__": tuple(
            name for name, field in fields.items() if field.init and not field.kw_only
        ),
    }
    cls: type = type(plain)(plain.__name__, plain.__bases__, body)
    cls.__qualname__ = plain.__qualname__
    init.cls = cls
    return cls


_CALL = object()  #: the default of a parameter whose value a factory makes


def _methods(fields: tuple[Any, ...], init: _Init, *, compared: bool) -> dict[str, Any]:
    """Return the methods of a frozen class by name; those of comparison where it is `compared`."""
    names = [field.name for field in fields if field.compare]

    def few(self: Any) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in names)

    values = attrgetter(*names) if len(names) > 1 else few

    def same(self: Any, other: Any) -> bool:
        return (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )

    def text(self: Any) -> str:
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields if field.repr)
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def state(self: Any) -> list[Any]:
        return [getattr(self, field.name) for field in fields]

    def restore(self: Any, state: list[Any]) -> None:
        for field, value in zip(fields, state, strict=True):
            object.__setattr__(self, field.name, value)

    comparing = {"__eq__": same, "__hash__": lambda self: hash(values(self))} if compared else {}
    return {
        **comparing,
        "__init__": init,
        "__repr__": text,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__getstate__": state,
        "__setstate__": restore,
    }


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to or delete field {name!r}")


#: Objects of a class for which its `__init__` isn't compiled: that takes as long as a hundred.
_UNCOMPILED = 20


class _Init:
    """`__init__` of a class, which is compiled for its later objects: most have few."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.cls: Any = object
        self.made = 0
        self.fields = tuple(sorted(fields.values(), key=lambda field: bool(field.kw_only)))
        self.in_order = [field.name for field in self.fields if field.init and not field.kw_only]

    def __get__(self, instance: Any, owner: type) -> Any:
        self.made += 1
        if instance is not None and self.made <= _UNCOMPILED:
            return partial(self.fill, instance)
        return self.compiled().__get__(instance, owner)

    def compiled(self) -> Any:
        init: Any = _init(self.cls, self.fields)
        self.cls.__init__ = init
        return init

    def fill(self, instance: Any, *args: Any, **values: Any) -> None:
        """Set all fields; of wrong arguments the compiled function tells."""
        taken = dict(zip(self.in_order, args, strict=False))
        wrong = len(args) > len(taken) or not taken.keys().isdisjoint(values)
        taken |= values
        left = len(taken)
        for field in self.fields:
            name = field.name
            if field.init and name in taken:
                value, left = taken[name], left - 1
            elif field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            else:
                value = field.default
                wrong = wrong or value is dataclasses.MISSING
            object.__setattr__(instance, name, value)
        if wrong or left:
            self.compiled()(instance, *args, **values)
        elif hasattr(self.cls, "__post_init__"):
            instance.__post_init__()


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    """Compile `__init__`: a parameter for each field, and its default."""
    names: dict[str, Any] = {"_CALL": _CALL}
    parameters: list[str] = ["self"]
    lines: list[str] = []
    for field in sorted(fields, key=lambda field: bool(field.kw_only)):
        if field.init and field.kw_only and "*" not in parameters:
            parameters.append("*")
        name, value = field.name, field.name
        default = "" if field.default is dataclasses.MISSING else f"_default_{name}"
        names[default] = field.default
        if field.default_factory is not dataclasses.MISSING:
            names[f"_new_{name}"], default = field.default_factory, "_CALL"
            value = (
                f"_new_{name}() if {name} is _CALL else {name}" if field.init else f"_new_{name}()"
            )
        if field.init:
            parameters.append(f"{name}={default}" if default else name)
        # A slot's own method is a quarter faster than `object.__setattr__`, which looks it up.
        slot = getattr(cls, name)
        names[f"_set_{name}"] = slot.__set__
        lines.append(f"_set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n ".join(lines or ["pass"])
    exec(f"def __init__({', '.join(parameters)}):\n {body}", names)
    init = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {field.name: field.type for field in fields if field.init} | {
        "return": None
    }
    return init
