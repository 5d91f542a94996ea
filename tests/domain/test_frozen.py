"""Frozen dataclasses keep the promises of the standard library's, though they are made in another way."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Mapping
from dataclasses import KW_ONLY, FrozenInstanceError, InitVar, asdict, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import orjson
import pytest
from pydantic import TypeAdapter, ValidationError

from app.domain.frozen import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sum(Generic[T]):
    """An amount, who owes it, and what is known of it."""

    amount: T
    owner: str = "nobody"
    notes: Mapping[str, int] = field(default_factory=dict)
    key: str | None = field(default=None, repr=False)

    def doubled(self) -> str:
        """Say it twice."""
        return f"{self.amount} {self.amount}"


@dataclasses.dataclass(frozen=True, slots=True)
class Twin:
    """The same as the standard library makes it."""

    amount: int
    owner: str = "nobody"
    notes: Mapping[str, int] = field(default_factory=dict)
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Alone:
    one: int


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(slots=True)
class Open:
    amount: int


@dataclass(frozen=True, slots=True, order=True)
class Ordered:
    amount: int


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, "Ada"), {"notes": {"a": 1}}),
    ((), {"owner": "Ada", "amount": 2, "key": "secret"}),
    ((1, "Ada", {}, None), {}),
]


@pytest.mark.parametrize(("given", "named"), CALLS)
def test_an_instance_holds_what_the_standard_librarys_holds(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    made, twin = Sum[int](*given, **named), Twin(*given, **named)
    other: object = twin
    assert asdict(made) == asdict(twin)
    assert repr(made) == repr(twin).replace("Twin", "Sum")
    assert orjson.dumps(made) == orjson.dumps(twin)
    assert made == Sum(*given, **named)
    assert made != other
    assert replace(made, owner="Eve").owner == "Eve"


@pytest.mark.parametrize(
    ("given", "named"), [((), {}), ((1, "a", {}, "k", 5), {}), ((1,), {"amount": 1}), ((1,), {"x": 1})]
)
def test_wrong_arguments_are_a_type_error(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    for kind in (Sum, Twin):
        with pytest.raises(TypeError):
            kind(*given, **named)


def test_nothing_can_be_set_or_deleted() -> None:
    made = Sum(1)
    with pytest.raises(FrozenInstanceError, match="amount"):
        made.amount = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="amount"):
        del made.amount
    with pytest.raises(FrozenInstanceError, match="more"):
        made.more = 2  # type: ignore[attr-defined]
    assert made.amount == 1
    assert not hasattr(made, "__dict__")


def test_a_default_that_is_made_is_made_for_each_instance() -> None:
    assert Sum(1).notes is not Sum(1).notes


def test_equal_ones_hash_alike_and_one_that_holds_a_dict_has_no_hash() -> None:
    assert len({Alone(1), Alone(1), Alone(2)}) == 2
    assert len({Nothing(), Nothing()}) == 1
    with pytest.raises(TypeError):
        hash(Sum(1))


@pytest.mark.parametrize("made", [Sum(1, "Ada", {"a": 1}), Alone(1), Nothing()])
def test_a_copy_is_equal_and_what_it_holds_is_copied_when_asked(made: Any) -> None:
    for copied in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):  # noqa: S301 - our own
        assert copied == made
    if isinstance(made, Sum):
        assert copy.copy(made).notes is made.notes
        assert copy.deepcopy(made).notes is not made.notes


def test_it_is_matched_by_place_and_keeps_its_methods_and_what_is_told_of_its_fields() -> None:
    match Sum(1, "Ada"):
        case Sum(amount, owner):
            assert (amount, owner) == (1, "Ada")
    assert Sum(3).doubled() == "3 3"
    assert [entry.name for entry in dataclasses.fields(Sum)] == ["amount", "owner", "notes", "key"]
    assert list(inspect.signature(Sum).parameters) == list(inspect.signature(Twin).parameters)


def test_pydantic_takes_it_for_a_dataclass() -> None:
    adapter = TypeAdapter(Alone)
    assert adapter.validate_python({"one": "1"}) == Alone(1)
    assert adapter.dump_python(Alone(1)) == {"one": 1}
    with pytest.raises(ValidationError):
        adapter.validate_python({"one": "x"})


def test_other_kinds_are_left_to_the_standard_library() -> None:
    counted = Open(1)
    counted.amount += 1
    assert counted == Open(2)
    assert Ordered(1) < Ordered(2)


def _nothing(*_: object) -> None:
    pass


@pytest.mark.parametrize(
    ("what", "notes", "held"),
    [
        ("__post_init__", {}, {"__post_init__": _nothing}),
        ("__eq__ and __hash__", {}, {"__eq__": _nothing}),
        ("__hash__", {}, {"__hash__": _nothing}),
        ("__repr__", {}, {"__repr__": _nothing}),
        ("__init__", {}, {"__init__": _nothing}),
        ("__reduce__", {}, {"__reduce__": _nothing}),
        ("more", {"more": InitVar[int]}, {}),
        ("more", {"more": InitVar[int]}, {"more": 1}),
        ("more", {"more": "InitVar[int]"}, {}),
        ("more", {"_": KW_ONLY, "more": int}, {}),
        ("more", {"more": int}, {"more": field(kw_only=True)}),
        ("more", {"more": int}, {"more": field(default=1, init=False)}),
        ("more", {"more": int}, {"more": field(default=1, compare=False)}),
        ("more", {"more": int}, {"more": field(default=1, hash=False)}),
    ],
)
def test_what_would_be_something_else_here_is_refused(what: str, notes: dict[str, Any], held: dict[str, Any]) -> None:
    space = {"__module__": __name__, "__annotations__": {"amount": int, **notes}, **held}
    with pytest.raises(TypeError, match=f"Odd: .*{what}.* the standard library's"):
        dataclass(frozen=True, slots=True)(type("Odd", (), space))


def test_a_base_gives_its_fields_and_keeps_what_is_its_own() -> None:
    @dataclass(frozen=True, slots=True)
    class More(Alone):
        two: int = 2
        default_two: int = 3
        kind: ClassVar[str] = "more"

    @dataclass(frozen=True, slots=True)
    class Other(Alone):
        one: int = 7

    assert (More(1).one, More(1).two, More(1).default_two, More(1).kind) == (1, 2, 3, "more")
    assert More(1) == More(1, 2)
    assert Alone(7) != Other()
    assert copy.copy(Other()) == Other(7)
    with pytest.raises(FrozenInstanceError, match="one"):
        More(1).one = 2  # type: ignore[misc]


def test_a_post_init_of_a_base_is_refused_too() -> None:
    class Base:
        def __post_init__(self) -> None:
            pass

    with pytest.raises(TypeError, match="__post_init__"):

        @dataclass(frozen=True, slots=True)
        class Odd(Base):
            one: int
