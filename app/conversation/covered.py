"""Which messages a summary covers: by their positions, which never change, so no clock decides (R61, R71)."""

from collections.abc import Iterable, Sequence

from app.domain.frozen import dataclass

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Covered:
    """Spans of positions, both ends included, in order. A message that may be sent and lies in one is covered.

    A message that was left out in the middle (a round that waited, a system message) ends one span and begins the next.
    """

    spans: tuple[Span, ...] = ()

    def __contains__(self, position: int) -> bool:
        return any(first <= position <= last for first, last in self.spans)

    def __bool__(self) -> bool:
        return bool(self.spans)

    @property
    def first(self) -> int:
        """The first covered position; 0 when nothing is covered."""
        return self.spans[0][0] if self.spans else 0

    @property
    def last(self) -> int:
        """The last covered position; 0 when nothing is covered."""
        return self.spans[-1][1] if self.spans else 0

    @property
    def inner_gaps(self) -> tuple[Span, ...]:
        """The spans between the covered ones."""
        pairs = zip(self.spans, self.spans[1:], strict=False)
        return tuple((before[1] + 1, after[0] - 1) for before, after in pairs)

    def adding(self, taken: Iterable[int], left: Iterable[int]) -> "Covered":
        """Cover `taken` as well. `left` are positions that may be sent and stay uncovered: no span runs over one."""
        barriers = sorted(left)
        merged: list[Span] = []
        for first, last in sorted([*self.spans, *((position, position) for position in taken)]):
            if merged and not _between(barriers, merged[-1][1], first):
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        return Covered(tuple(merged))


def _between(barriers: Sequence[int], low: int, high: int) -> bool:
    return any(low < position < high for position in barriers)
