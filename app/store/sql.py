"""Statements that every turn runs: text, made once, and given to the driver itself.

Built by the toolkit a statement costs three times the CPU of running it; these cost what the driver costs. What one
table's module says about its rows is put together to statements that write several tables at once.
"""

import re
from typing import Any, Final

from app.domain.jsontext import dumps_text
from app.store.database import Connection

_VALUE: Final = re.compile(r"(?<!:):([a-z_]+)")


class Statement:
    """A statement in which `:name` stands for a value; each value has to be cast to its type where it is first met."""

    def __init__(self, text: str) -> None:
        """Number the values."""
        self._names = tuple(dict.fromkeys(_VALUE.findall(text)))
        places = {name: f"${place}" for place, name in enumerate(self._names, start=1)}
        self.text = _VALUE.sub(lambda found: places[found[1]], text)

    async def first(self, connection: Connection, values: dict[str, Any]) -> Any:
        """Run it in the connection's transaction and give its first row, or None."""
        return await connection.driver.fetchrow(self.text, *[values[name] for name in self._names])

    async def rows(self, connection: Connection, values: dict[str, Any]) -> list[Any]:
        """Run it in the connection's transaction and give all its rows."""
        found: list[Any] = await connection.driver.fetch(self.text, *[values[name] for name in self._names])
        return found


def as_json(value: Any) -> str | None:
    """Give a value of a JSON column as the driver takes it; None is no value, not JSON's null."""
    return None if value is None else dumps_text(value)
