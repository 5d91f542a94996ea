"""Where `python -m app` begins: the commands are imported without looking for garbage, and the one asked for runs."""

import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

YOUNG: Final = 10_000
"""How many objects may be new before the collector looks through them. With its usual 700 it does so while a turn is
still using them, which takes a twentieth of a busy server's time; most are gone by themselves soon after."""

UNASKED: Final = ("pydantic.v1", "rich", "watchfiles")
"""What libraries import wherever it is installed: for models as they once were, for colours, to load code again."""


def commands() -> Callable[[], None]:
    """Import the commands; what is given runs the one that the arguments name.

    What imports make stays for good. To look through it for garbage would be a tenth of the start or more, and would
    stop every turn for a tenth of a second whenever the collector looks at everything; so it never does.
    """
    gc.disable()
    with without(UNASKED), built_later():
        from app.commands import cli  # noqa: PLC0415 - the collector has to be off by then

    gc.freeze()
    gc.set_threshold(YOUNG)
    gc.enable()
    return cli


@contextmanager
def without(modules: tuple[str, ...]) -> Iterator[None]:
    """Let imports take these modules for not installed; None in the table of modules says so to Python."""
    hidden = [name for name in modules if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextmanager
def built_later() -> Iterator[None]:
    """Let pydantic build a model when it is first used; a model has what its base has, so the base of all is told.

    Most of FastAPI's models are for its description, and most of ours are parts of others, bases, or of rare calls.
    """
    from pydantic import BaseModel  # noqa: PLC0415 - the collector has to be off by then
    from pydantic.warnings import UnsupportedFieldAttributeWarning  # noqa: PLC0415

    # FastAPI silences it around what it builds at once: it hands names of parameters on that pydantic has no use for.
    warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
    BaseModel.model_config["defer_build"] = True
    try:
        yield
    finally:
        del BaseModel.model_config["defer_build"]


if __name__ == "__main__":
    commands()()
