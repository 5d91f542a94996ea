"""`dataclass`, for what is frozen and has slots: the same promises at a fifth of the cost to make the class.

The standard library compiles six methods for each class, which for the many values there are is a tenth of a start.
Here `__init__` alone is compiled; the others are shared.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

T = TypeVar("T")

_MADE_HERE = frozenset({"__init__", "__eq__", "__hash__", "__repr__", "__reduce__", "__setattr__", "__delattr__"})


def _frozen(made: type[T]) -> type[T]:
    """Give a dataclass without methods those that one with `frozen` and `eq` has."""
    own: tuple[Field[Any], ...] = fields(cast("Any", made))
    names = tuple(field.name for field in own)
    shown = tuple(field.name for field in own if field.repr)
    content: Callable[[object], Any] = attrgetter(*names) if names else lambda _: ()

    def equal(self: T, other: object) -> bool:
        return content(self) == content(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: T) -> int:
        return hash(content(self))

    def text(self: T) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def reduced(self: T) -> tuple[type[T], tuple[Any, ...]]:
        return self.__class__, tuple(getattr(self, name) for name in names)

    methods = {
        "__init__": _init(made, own),
        "__eq__": equal,
        "__hash__": hashed,
        "__repr__": text,
        "__reduce__": reduced,  # a copy is made anew, since nothing can be set on it
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }
    for name, method in methods.items():
        setattr(made, name, method)
    return made


def _check(given: type) -> None:
    """Refuse a class whose own methods would be lost. Raises TypeError, as `_check_fields` does."""
    lost = sorted(_MADE_HERE & vars(given).keys())
    if hasattr(given, "__post_init__"):
        lost.append("__post_init__")
    if lost:
        raise _unusual(given, " and ".join(lost))


def _check_fields(made: type) -> None:
    """Refuse fields that are not simply given, compared and hashed."""
    told: dict[str, Field[Any]] = vars(made)["__dataclass_fields__"]
    for name, field in told.items():
        passing = field._field_type is dataclasses._FIELD_INITVAR  # type: ignore[attr-defined]  # noqa: SLF001
        if passing or field.kw_only is True or not (field.init and field.compare) or field.hash is not None:
            raise _unusual(made, f"the field {name!r} as it is told")


def _unusual(kind: type, what: str) -> TypeError:
    return TypeError(f"{kind.__qualname__}: {what} asks for the standard library's dataclass; take that one here")


def _init(made: type, own: tuple[Field[Any], ...]) -> Callable[..., None]:
    """Compile `__init__`: it fills the slots themselves, since the instance lets nobody set anything."""
    space: dict[str, Any] = {}
    takes, does = ["self"], []
    for field in own:
        name = field.name
        space[f"__set_{name}__"] = getattr(made, name).__set__
        made_anew = field.default_factory is not MISSING
        if made_anew or field.default is not MISSING:
            space[f"__default_{name}__"] = field.default_factory if made_anew else field.default
            takes.append(f"{name}=__default_{name}__")
        else:
            takes.append(name)
        if made_anew:
            does.append(f" if {name} is __default_{name}__: {name} = {name}()")
        does.append(f" __set_{name}__(self, {name})")
    exec(f"def __init__({', '.join(takes)}):\n" + "\n".join(does or [" pass"]), space)  # noqa: S102 - names of fields
    init: Callable[..., None] = space.pop("__init__")
    init.__qualname__ = f"{made.__qualname__}.__init__"
    init.__annotations__ = {**{field.name: field.type for field in own}, "return": None}
    return init


def _refuse(self: object, name: str, value: object = None) -> NoReturn:
    """Stand for `__setattr__` and `__delattr__`."""
    del value
    message = f"{type(self).__name__} is frozen: {name!r} can't be changed"
    raise FrozenInstanceError(message)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - to be imported from here
else:

    def dataclass(**options: bool) -> Callable[[type[T]], type[T]]:
        """Take what the standard library's takes; all but frozen ones with slots are made by it.

        Of those that have methods or fields which would be something else here, it raises TypeError.
        """
        if options != {"frozen": True, "slots": True}:
            return dataclasses.dataclass(**options)
        bare = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)

        def make(given: type[T]) -> type[T]:
            _check(given)
            given.__doc__ = given.__doc__ or given.__name__  # else its signature is written out, which takes longest
            made = bare(given)
            _check_fields(made)
            return _frozen(made)

        return make
