"""Answers that fail, in the words of each dialect, and what the gateway has to make of each of them.

Each is asked for over HTTP, from one model with another behind it; the other one answers well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.mock_model import Answer
from tests.providers.trap_words import TEXT, Words

FAR: Final = "Fri, 30 Nov 2096 12:00:02 GMT"
PAST: Final = "Mon, 30 Nov 2020 12:00:02 GMT"
BACKOFF: Final = 0.5


@dataclass(frozen=True)
class Came:
    """How often the first model was asked, with which waits, whether the second was, and the error if one was told."""

    asked: int = 1
    waits: tuple[float, ...] = ()
    served: bool = False
    """The second model has answered in the first one's place."""

    reason: str | None = None
    status: int | None = None
    after_output: bool = False


AGAIN: Final = Came(2, (BACKOFF,), served=True)
"""The same model is asked once more, and then the next one answers."""

NEXT: Final = Came(served=True)
"""The next model answers at once."""

FINE: Final = Came()

Case = tuple[Answer, Came]


def failing_answers(words: Words) -> Mapping[str, Case]:
    """Give the cases of a dialect by their names."""
    return {**_refused(), **_no_stream(), **_before_output(words), **_after_output(words)}


def _refused() -> dict[str, Case]:
    quota = {"error": {"type": "insufficient_quota", "message": "You exceeded your current quota."}}
    slow = {"error": {"message": "Rate limit reached"}}
    long = {"error": {"message": "The prompt is too long: 210000 tokens > 200000 maximum"}}

    def limited(wait: str) -> Answer:
        return {"status": 429, "headers": {"retry-after": wait}, "body": slow}

    return {
        "429 with a short wait": (limited("1"), Came(2, (1.0,), served=True)),
        "429 with a date that has passed": (limited(PAST), Came(2, (0.0,), served=True)),
        "429 with a date that is far": (limited(FAR), NEXT),
        "429 with an hour": (limited("3600"), NEXT),
        "429 of a quota": ({"status": 429, "headers": {"retry-after": "1"}, "body": quota}, NEXT),
        "529": ({"status": 529, "body": {"type": "error", "error": {"type": "overloaded_error"}}}, AGAIN),
        "503": ({"status": 503, "body": {"error": {"message": "The model is loading."}}}, AGAIN),
        "502 with a page": ({"status": 502, "body": "<html>Bad gateway</html>"}, AGAIN),
        "400 of the context's length": ({"status": 400, "body": long}, Came(reason="context_length", status=400)),
        "401": ({"status": 401, "body": {"error": {"message": "Wrong key"}}}, NEXT),
    }


def _no_stream() -> dict[str, Case]:
    overloaded = {"error": {"type": "overloaded_error", "message": "Overloaded"}}
    return {
        "a page in the place of a stream": ({"body": "<html>hello</html>"}, AGAIN),
        "a document in the place of a stream": ({"body": {"choices": []}}, NEXT),
        "an error in the place of a stream": ({"body": overloaded}, AGAIN),
    }


def _errors(words: Words) -> dict[str, bytes]:
    """Give the forms in which an error comes inside a success."""
    old = {"object": "error", "message": "it broke", "code": 500}
    return {
        "an error in the stream": words.event(words.error),
        "an error of an old server": words.event(old),
        "an error in a field of its own": b'error: {"code": 500, "message": "it broke"}\n\n',
        "an event that is no JSON": b"data: {bad\n\n",
    }


def _before_output(words: Words) -> dict[str, Case]:
    cases = {f"{name}, first": (_bare({"raw": words.begin + data}), AGAIN) for name, data in _errors(words).items()}
    for name, step in (("an end", {"eof": True}), ("a reset", {"reset": True}), ("a cut", {"cut": True})):
        cases[f"{name}, first"] = (_bare({"raw": words.begin}, step), AGAIN)
    return cases


def _after_output(words: Words) -> dict[str, Case]:
    said, end = {"raw": words.begin + words.say(TEXT)}, {"raw": words.end("stop")}
    reasons = dict(zip(_errors(words), ("overloaded", "server", "server", "protocol"), strict=True))
    cases = {
        f"{name}, after output": (_bare(said, {"raw": data}), Came(reason=reasons[name], after_output=True))
        for name, data in _errors(words).items()
    }
    for name, step, reason in (
        ("an end", {"eof": True}, "truncated"),
        ("a cut", {"cut": True}, "transport"),
    ):
        cases[f"{name}, after output"] = (_bare(said, step), Came(reason=reason, after_output=True))
    for ending in ("eof", "cut"):
        cases[f"{ending} behind a whole answer"] = (_bare(said, end, {ending: True}), FINE)
    return cases


def _bare(*steps: dict[str, Any]) -> Answer:
    return {"steps": list(steps), "bare": True}
