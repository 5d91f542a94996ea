"""What a conversation with pauses must be after each step: a few values, kept beside the real thing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

After = Literal["reply", "ask", "ask two", "fail", "forbidden", "forbidden ask"]
SO_FAR = "So far. "
FORBIDDEN = "forbidden"
NOT_RUN = "not run"


@dataclass
class Said:
    """A stored message: `what` is its text, or the ids of its calls, or which call it answers and how."""

    turn: int
    role: str
    what: Any
    sent: bool = True


@dataclass
class Held:
    """A pause: its calls, the answers that came so far, and where it is."""

    pause_id: str
    stream_id: str
    turn: int
    calls: tuple[str, ...]
    on_expiry: str
    answers: dict[str, str] = field(default_factory=dict)


@dataclass
class Busy:
    """An operation that waits in the middle of the model's answer."""

    stream_id: str
    turn: int
    after: After
    on_expiry: str
    spoken: bool
    replica: int


@dataclass
class Model:
    """One conversation."""

    messages: list[Said] = field(default_factory=list)
    held: Held | None = None
    busy: Busy | None = None
    streams: dict[str, str] = field(default_factory=dict)
    past: list[Held] = field(default_factory=list)
    turns: int = 0

    def begin_turn(self, text: str) -> int:
        """A turn is accepted: a held pause ends, then its input is stored."""
        if self.held is not None:
            self.end_pause()
        self.turns += 1
        self.messages.append(Said(self.turns, "user", text))
        return self.turns

    def end_pause(self) -> None:
        """The held pause ends without its host."""
        held = self.held
        assert held is not None
        self._answer(held, {})
        self.streams[held.stream_id] = "cancelled"
        self.held = None

    def take(self, given: dict[str, str], stream_id: str | None = None) -> Held:
        """Results take the held pause, onto a stream of their own when one is named."""
        held = self.held
        assert held is not None
        self._answer(held, given)
        if stream_id is not None:
            self.streams[held.stream_id] = "cancelled"
        self.held = None
        return held

    def _answer(self, held: Held, given: dict[str, str]) -> None:
        before = [(call, held.answers[call]) for call in held.calls if call in held.answers]
        new = [(call, text) for call, text in given.items() if call not in held.answers]
        answered = {call for call, _ in [*before, *new]}
        lost = [(call, NOT_RUN) for call in held.calls if call not in answered]
        self.messages += [Said(held.turn, "tool", answer) for answer in [*before, *new, *lost]]

    def finish(self, stream_id: str, turn: int, after: After, text: str, pause: Held | None) -> None:
        """An operation ends as its model's answer says."""
        match after:
            case "reply":
                self.messages.append(Said(turn, "assistant", (text, ())))
                self.streams[stream_id] = "completed"
            case "ask" | "ask two":
                assert pause is not None
                self.messages.append(Said(turn, "assistant", (text or None, pause.calls)))
                self.streams[stream_id] = "paused"
                self.held = pause
                self.past.append(pause)
            case "fail":
                self.streams[stream_id] = "failed"
            case "forbidden" | "forbidden ask":
                self.streams[stream_id] = "blocked"

    def cut(self, status: str) -> Busy:
        """What runs is ended from outside; what it has said is its reply."""
        busy = self.busy
        assert busy is not None
        if busy.spoken:
            self.messages.append(Said(busy.turn, "assistant", (SO_FAR, ())))
        self.streams[busy.stream_id] = status
        self.busy = None
        return busy

    def take_back(self, turn: int) -> None:
        """A turn is rolled back: it stays and is told to nobody."""
        for said in self.messages:
            said.sent = said.sent and said.turn != turn

    def told(self) -> list[tuple[str, Any]]:
        """What a model must be told: all that is sent, answers in the order of their calls."""
        return in_order([(said.role, said.what) for said in self.messages if said.sent])


def in_order(entries: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Put the answers of each round into the order of their calls; the ids of calls grow."""
    found: list[tuple[str, Any]] = []
    answers: list[tuple[str, Any]] = []
    for entry in [*entries, ("", None)]:
        if entry[0] == "tool":
            answers.append(entry)
            continue
        found += sorted(answers, key=lambda answer: int(answer[1][0].removeprefix("call-")))
        answers = []
        found.append(entry)
    return found[:-1]
