"""`dataclass` of the standard library, which makes frozen classes with slots ten times as fast.

Before Python 3.13 the standard library compiles six methods of each such class, half a millisecond
in all, and changes the class method by method. With two hundred classes that is a fifth of a
command's time. Here a class is made once, with all its methods. Only `__init__` is compiled, and
only once a class has many objects.
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

        def decorate(plain: type) -> type:
            fields = _fields(plain, kw_only=options.get("kw_only", False))
            return _with_slots(plain, fields, compared=options.get("eq", True))

        return decorate


#: The standard library's own mark of a frozen class. It reads the mark of each base where it
#: decorates a class that derives from one of ours.
_PARAMETERS: Any = vars(dataclasses.make_dataclass("_Frozen", [], frozen=True))[
    "__dataclass_params__"
]
#: Its mark of an ordinary field: neither a `ClassVar` nor an `InitVar`.
_ORDINARY: Any = vars(dataclasses)["_FIELD"]


def _fields(plain: type, *, kw_only: bool) -> dict[str, Any]:
    """Return the fields of a class by name: those of its bases, then its own."""
    fields: dict[str, Any] = {}
    for base in plain.__mro__[:0:-1]:
        fields |= getattr(base, "__dataclass_fields__", {})

    for name, kind in plain.__annotations__.items():
        if "ClassVar" in kind:
            continue
        default = getattr(plain, name, dataclasses.MISSING)
        if isinstance(default, MemberDescriptorType):  # the slot of a base
            default = dataclasses.MISSING
        is_field = isinstance(default, dataclasses.Field)  # written as `field(...)`
        field: Any = default if is_field else dataclasses.field(default=default)
        # All objects would share such a default, a list for one. The standard library tells so too.
        if field.default.__class__.__hash__ is None:
            raise ValueError(f"{name} of {plain.__name__} needs a default_factory")
        field.name, field.type = name, kind
        field._field_type = _ORDINARY
        if field.kw_only is dataclasses.MISSING:
            field.kw_only = kw_only
        fields[name] = field
    return fields


def _with_slots(plain: type, fields: dict[str, Any], *, compared: bool) -> type:
    """Make the class anew, with slots and with all methods that it doesn't write itself."""
    inherited = {name for base in plain.__mro__[1:] for name in getattr(base, "__slots__", ())}
    # A default would be in the way of the slot of its name.
    left_out = {*fields, "__dict__", "__weakref__"}
    written = {name: value for name, value in plain.__dict__.items() if name not in left_out}
    init = _Init(fields)
    body = {
        **_methods(tuple(fields.values()), init, compared=compared),
        **written,  # after the methods that are made, so that those the class writes win
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

    def of_one_or_none(self: Any) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in names)

    # attrgetter is faster, but gives a tuple for two names or more only.
    values = attrgetter(*names) if len(names) > 1 else of_one_or_none

    def same(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

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


#: Objects of a class that are made before its `__init__` is compiled. Compiling takes as long as
#: filling a hundred objects field by field, and most classes have few.
_FILLED_FIRST = 20


class _Init:
    """`__init__` of a class: fills the first objects field by field, and is then compiled."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.cls: Any = object
        self.objects = 0
        # Positional fields first, as their parameters must be; the order is kept otherwise.
        self.fields = tuple(sorted(fields.values(), key=lambda field: bool(field.kw_only)))
        self.positional = [field.name for field in self.fields if field.init and not field.kw_only]

    def __get__(self, instance: Any, owner: type) -> Any:
        # Python looks `__init__` up once for each object that it makes.
        self.objects += 1
        if instance is not None and self.objects <= _FILLED_FIRST:
            return partial(self.fill, instance)
        return self.compiled().__get__(instance, owner)

    def compiled(self) -> Any:
        """Compile `__init__`, and put it in the place of this object."""
        init: Any = _compiled_init(self.cls, self.fields)
        self.cls.__init__ = init
        return init

    def fill(self, instance: Any, *args: Any, **keywords: Any) -> None:
        """Set all fields. Wrong arguments go to the compiled function, which raises for them."""
        values = dict(zip(self.positional, args, strict=False))  # too many are noticed next
        are_wrong = len(args) > len(values) or not values.keys().isdisjoint(keywords)
        values |= keywords
        unused = len(values)
        for field in self.fields:
            name = field.name
            if field.init and name in values:
                value, unused = values[name], unused - 1
            elif field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            else:
                value = field.default
                are_wrong = are_wrong or value is dataclasses.MISSING
            object.__setattr__(instance, name, value)

        if are_wrong or unused:
            self.compiled()(instance, *args, **keywords)
        elif hasattr(self.cls, "__post_init__"):
            instance.__post_init__()


def _compiled_init(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    """Compile `__init__`: a parameter for each field, and its default.

    The text of it names defaults, factories and setters; `namespace` holds them by these names.
    """
    namespace: dict[str, Any] = {"_CALL": _CALL}
    parameters: list[str] = ["self"]
    lines: list[str] = []
    for field in fields:
        if field.init and field.kw_only and "*" not in parameters:
            parameters.append("*")
        name = field.name

        default, value = "", name  # texts of expressions
        if field.default_factory is not dataclasses.MISSING:
            namespace[f"_new_{name}"] = field.default_factory
            default, value = "_CALL", f"_new_{name}()"
            if field.init:
                value += f" if {name} is _CALL else {name}"
        elif field.default is not dataclasses.MISSING:
            default = f"_default_{name}"
            namespace[default] = field.default

        if field.init:
            parameters.append(f"{name}={default}" if default else name)
        # A slot's own method is a quarter faster than `object.__setattr__`, which looks it up.
        slot = getattr(cls, name)
        namespace[f"_set_{name}"] = slot.__set__
        lines.append(f"_set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")

    body = "\n ".join(lines or ["pass"])
    exec(f"def __init__({', '.join(parameters)}):\n {body}", namespace)
    init = namespace["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {field.name: field.type for field in fields if field.init} | {
        "return": None
    }
    return init
