"""Importing much at once: what is changed meanwhile, and that afterwards the process is as it was."""

import gc
import sys
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from app.domain.importing import lean

NOWHERE = "a_module_of_nobody"


def state() -> tuple[bool, bool, bool]:
    """Tell whether the collector is on, models are built later, and the module is told to be nowhere."""
    return gc.isenabled(), BaseModel.model_config.get("defer_build", False), NOWHERE in sys.modules


@pytest.fixture(params=["on", "off"])
def before(request: pytest.FixtureRequest) -> Iterator[tuple[bool, bool, bool]]:
    """Have the collector on or off."""
    enabled = gc.isenabled()
    (gc.enable if request.param == "on" else gc.disable)()
    yield state()
    (gc.enable if enabled else gc.disable)()


def test_afterwards_the_process_is_as_it_was(before: tuple[bool, bool, bool]) -> None:
    with lean(NOWHERE):
        assert state() == (False, True, True)
        with pytest.raises(ImportError):
            __import__(NOWHERE)
    assert state() == before


def test_one_inside_another_leaves_all_to_the_outer_one(before: tuple[bool, bool, bool]) -> None:
    with lean(NOWHERE):
        with lean(NOWHERE):
            pass
        assert state() == (False, True, True)
    assert state() == before


def test_an_import_that_fails_leaves_nothing_behind(before: tuple[bool, bool, bool]) -> None:
    with pytest.raises(ImportError), lean():
        __import__(NOWHERE)
    assert state() == before


def test_what_is_there_already_stays_there() -> None:
    with lean("pydantic"):
        import pydantic

        assert pydantic.BaseModel is BaseModel
    assert sys.modules["pydantic"] is pydantic


def test_a_model_that_is_made_meanwhile_is_built_when_it_is_first_used() -> None:
    with lean():

        class Later(BaseModel):
            count: int

    class AtOnce(BaseModel):
        count: int

    assert (Later.__pydantic_complete__, AtOnce.__pydantic_complete__) == (False, True)
    assert Later(count=1).count == 1


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_made_meanwhile_is_old_afterwards_unless_others_have_frozen_something(*, frozen: bool) -> None:
    gc.collect()
    if frozen:
        gc.freeze()
    held = gc.get_freeze_count()
    try:
        with lean():
            made: list[list[int]] = [[] for _ in range(10)]
        old = {id(each) for each in gc.get_objects(generation=2)}
        assert all((id(each) in old) is not frozen for each in made)
        assert gc.get_freeze_count() == held
    finally:
        gc.unfreeze()
