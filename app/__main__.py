"""Where `python -m app` begins: the commands are imported without looking for garbage, and the one asked for runs."""

import gc
from collections.abc import Callable
from typing import Final

from app.domain.importing import lean

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
    with lean(*UNASKED):
        from app.commands import cli  # noqa: PLC0415 - not before the collector is off

        gc.freeze()
    gc.set_threshold(YOUNG)
    return cli


if __name__ == "__main__":
    commands()()
