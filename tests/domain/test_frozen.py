"""Frozen dataclasses keep the promises of the standard library's, though they are made in another way."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, field, replace
from typing import Any, Generic, TypeVar

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
