"""What an operation has so far, kept outside its generators: a cancel or a timeout must not lose text or usage."""

from dataclasses import field

from app.domain.chunks import GmiChunk, StepFinished, TextDelta, UsageUpdate
from app.domain.frozen import dataclass
from app.domain.text import Growing
from app.domain.usage import Usage


@dataclass(slots=True)
class Tally:
    """Text and usage of a running operation. Within a step, usage is a running total and replaces the one before."""

    before: Usage = field(default_factory=Usage)
    _settled: Usage = field(default_factory=Usage)
    _step: Usage = field(default_factory=Usage)
    _text: Growing = field(default_factory=Growing)

    def count(self, chunk: GmiChunk) -> None:
        """Take a chunk of the GMI into account."""
        match chunk:
            case TextDelta(text):
                self._text.add(text)
            case UsageUpdate(usage, attempt_failed):
                if attempt_failed:
                    self._settled += usage
                    self._step = Usage()
                else:
                    self._step = usage
            case StepFinished():
                self._settled += self._step
                self._step = Usage()
            case _:
                pass

    @property
    def usage(self) -> Usage:
        """What the whole turn has used, earlier operations included."""
        return self.before + self._settled + self._step

    @property
    def text(self) -> str:
        """The text that this operation has written."""
        return str(self._text)
