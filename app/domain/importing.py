"""How much is imported quickly: no garbage is looked for, no model is built, and what nobody asked for is not there.

It is for the start of the service. Each of these finds out whether another is around it already, and afterwards the
process is as it was before.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lean(*unasked: str) -> Iterator[None]:
    """Import with the collector off and without building models; what is `unasked` is taken for not installed.

    What imports make stays for good, so to look through it for garbage again and again finds none. A library that has
    looked for something unasked remembers that it is not there: only a process that is all our own may say so.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with without(*unasked), built_later():
            yield
    finally:
        if collects:
            if not gc.get_freeze_count():
                gc.freeze()  # all is old then, and is not looked through as if it were young
                gc.unfreeze()
            gc.enable()


@contextmanager
def without(*modules: str) -> Iterator[None]:
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

    Most of FastAPI's models are for its description, and most of the settings' are parts of others.
    """
    from pydantic import BaseModel  # noqa: PLC0415 - whoever asks may have to turn the collector off first

    told = "defer_build" in BaseModel.model_config
    if not told:
        BaseModel.model_config["defer_build"] = True
    try:
        yield
    finally:
        if not told:
            del BaseModel.model_config["defer_build"]
