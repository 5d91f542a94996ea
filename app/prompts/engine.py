"""Builds a prompt (R258): a pure function from what a turn knows to its texts, and to a report of what was cut."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from app.domain.frozen import dataclass
from app.prompts.sections import SECTIONS, Place, Section, sections_of
from app.prompts.slots import PromptInput

CUT: Final = " … (cut)"
_MARK: Final = 4
"""Tokens of the mark that stands where a text was cut."""


@dataclass(frozen=True, slots=True)
class Space:
    """How much room there is. `count` counts the tokens of a text.

    `window` is the model's, of which each section may take its share. `spare` is what is left of it for all sections
    together, behind tools, the input and the answer; None sets no such bound.
    """

    count: Callable[[str], int]
    window: int
    spare: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A section as it is told: its entries, their tokens, and how many tokens and whole entries were cut."""

    section: Section
    entries: tuple[str, ...]
    tokens: int
    cut_tokens: int = 0
    left_out: int = 0

    @property
    def text(self) -> str:
        """The section as the model reads it; data has a frame that the data can't close."""
        told = "\n".join(self.entries)
        name, heading = self.section.name, self.section.heading
        if self.section.place == "input":
            return f"{heading}\n<{name}>\n{_unclosed(told, name)}\n</{name}>"
        return f"{heading}\n{told}" if heading else told


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that was built. `system` is the system's message and `stable` how many characters of it never change.

    `context` is what stands in front of the user's newest message, `behind` what stands behind it; they are empty where
    there is nothing to tell.
    """

    system: str
    stable: int
    context: str
    behind: str
    system_tokens: int
    sections: tuple[Written, ...]

    def report(self) -> dict[str, Any]:
        """Give the tokens of each section, and what was cut, as clients read it."""
        return {
            "sections": {written.section.name: written.tokens for written in self.sections if written.entries},
            "cut": {written.section.name: _cut_of(written) for written in self.sections if written.cut_tokens},
        }

    def kept(self, name: str) -> int:
        """Give how many entries of a section are told."""
        return sum(len(written.entries) for written in self.sections if written.section.name == name)


def build(given: PromptInput, space: Space) -> Prompt:
    """Write all sections within the space. What is never cut comes first into it, the rest by priority."""
    found = [(section, said) for section in sections_of(given) if (said := _said(section.write(given)))]
    told = {section.name: _whole(section, entries, space) for section, entries in found if section.share is None}
    if len(told) == len(found):
        return _joined(list(told.values()))
    spare = space.spare
    if spare is not None:
        spare -= sum(written.tokens for written in told.values())
    for section, entries in found:
        if section.share is None:
            continue
        most = int(given.persona.prompt_shares.get(section.name, section.share) * space.window)
        written = _within(section, entries, most if spare is None else min(most, spare), space.count)
        told[section.name] = written
        if spare is not None:
            spare -= written.tokens
    return _joined([told[section.name] for section, _ in found])


def as_data(name: str, entries: Sequence[str]) -> str:
    """Give entries as the section of that name tells them, for a place of their own."""
    section = next(section for section in SECTIONS if section.name == name)
    return Written(section, tuple(entries), tokens=0).text


def fixed_tokens(given: PromptInput, count: Callable[[str], int]) -> int:
    """Count what is never cut: a turn whose input does not fit beside that can't be told at all."""
    fixed = (section for section in sections_of(given) if section.share is None)
    return sum(_cost(section, said, count) for section in fixed if (said := _said(section.write(given))))


def _said(entries: Sequence[str]) -> tuple[str, ...]:
    if not entries:
        return ()
    return tuple(entry for entry in entries if entry and not entry.isspace())


def _whole(section: Section, entries: tuple[str, ...], space: Space) -> Written:
    return Written(section, entries, _cost(section, entries, space.count))


def _cost(section: Section, entries: Sequence[str], count: Callable[[str], int]) -> int:
    return sum(map(count, entries)) + (count(section.heading) if section.heading and entries else 0)


def _within(section: Section, entries: Sequence[str], most: int, count: Callable[[str], int]) -> Written:
    """Give the first entries that fit; only a first one that is too long by itself is shortened."""
    costs = [count(entry) for entry in entries]
    room = most - (count(section.heading) if section.heading else 0)
    kept: list[str] = []
    used = 0
    for entry, cost in zip(entries, costs, strict=True):
        if used + cost <= room:
            kept.append(entry)
            used += cost
            continue
        short = "" if kept else _shortened(entry, cost, room, count)
        if short:
            kept.append(short)
            used += count(short)
        break
    return Written(
        section,
        tuple(kept),
        used + (most - room if kept else 0),
        cut_tokens=max(0, sum(costs) - used),
        left_out=len(entries) - len(kept),
    )


def _shortened(text: str, cost: int, room: int, count: Callable[[str], int]) -> str:
    """Give the beginning of a text, up to a space, with a mark behind it; nothing where not even that fits."""
    room -= _MARK
    length = len(text)
    while room > 0 and length > 0 and cost > room:
        length = min(length - 1, length * room // cost)
        cost = count(text[:length])
    if room <= 0 or length <= 0:
        return ""
    begin = text[:length]
    return (begin.rsplit(None, 1)[0] if " " in begin.strip() else begin) + CUT


def _joined(written: Sequence[Written]) -> Prompt:
    system = [one for one in written if one.section.place == "system" and one.entries]
    texts = [one.text for one in system]
    stable = next((place for place, one in enumerate(system) if not one.section.stable), len(system))
    return Prompt(
        system="\n\n".join(texts),
        stable=len("\n\n".join(texts[:stable])),
        context=_texts(written, "input"),
        behind=_texts(written, "behind_input"),
        system_tokens=sum(one.tokens for one in system),
        sections=tuple(written),
    )


def _texts(written: Sequence[Written], place: Place) -> str:
    return "\n\n".join(one.text for one in written if one.section.place == place and one.entries)


def _unclosed(data: str, name: str) -> str:
    """Give the data without what would end its own frame."""
    return data.replace(f"</{name}", f"< /{name}")


def _cut_of(written: Written) -> Mapping[str, int]:
    return {"tokens": written.cut_tokens, "entries": written.left_out}
