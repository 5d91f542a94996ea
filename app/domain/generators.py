"""Generators that are closed where they are left."""

from typing import Generic, TypeVar

T = TypeVar("T")


class aclosing(Generic[T]):  # noqa: N801 - named as the library's
    """Closes what was read when the block is left; the library's own is larger, and a turn holds ten of them."""

    __slots__ = ("_read",)

    def __init__(self, read: T) -> None:
        """Nothing is done before the block is left."""
        self._read = read

    async def __aenter__(self) -> T:
        return self._read

    async def __aexit__(self, *_: object) -> None:
        await self._read.aclose()  # type: ignore[attr-defined]
