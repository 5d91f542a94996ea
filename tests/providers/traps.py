"""What servers are known to send, in the words of each dialect, and what has to come of it.

A trap that any dialect can meet is written once, in `common`, with the dialect's own events put in; the others are in
`special_traps.py`. Each is read by `test_traps.py` from bytes, cut in every way, and over sockets.
"""

from collections.abc import Callable, Iterator

from app.domain.usage import Usage
from tests.providers.special_traps import special
from tests.providers.trap_words import ANTHROPIC, DIALECTS, HALVES, TEXT, Told, Trap, Words


def common(words: Words) -> Iterator[Trap]:
    """Give the traps that every dialect can meet."""
    said, end, begin = words.say(TEXT), words.end("stop"), words.begin
    whole = Told(TEXT, usage=words.usage, finish="stop")

    def trap(name: str, data: bytes, told: Told = whole) -> Trap:
        return Trap(f"{words.name}: {name}", words.dialect, data, told)

    plain = begin + said + end
    yield trap("a whole answer", plain)
    yield trap("lines that end in CR LF", plain.replace(b"\n", b"\r\n"))
    yield trap("lines that end in CR", plain.replace(b"\n", b"\r"))
    yield trap("a byte order mark", b"\xef\xbb\xbf" + plain)
    for name, noise in _NOISE.items():
        yield trap(name, noise + begin + noise + said + noise + end + noise)
    yield trap("events and fields that nobody knows", words.event({"type": "brand.new", "x": None}) + plain)
    yield trap(
        "half a character in each of two deltas",
        begin + b"".join(map(words.say, HALVES)) + end,
        Told("a🌍b", usage=words.usage, finish="stop"),
    )
    yield trap(
        "half a character alone", begin + words.say(HALVES[0]) + end, Told("a\ufffd", usage=words.usage, finish="stop")
    )
    yield trap("a last event without its blank line", plain.rstrip(b"\n"))
    yield from _broken(words, trap)
    yield from _calling(words, trap)


_NOISE = {
    "comments that keep the connection alive": b": keep-alive\n\n",
    "empty data": b"data:\n\n",
    "ids and retries without data": b"id: 3\n\nretry: 5\n\n",
}
Make = Callable[[str, bytes, Told], Trap]


def _broken(words: Words, trap: Make) -> Iterator[Trap]:
    """Give answers that go wrong; what was said before is given."""
    begin, said = words.begin, words.say(TEXT)
    lost = Told(TEXT, error="truncated", retryable=True)
    overloaded = Told(error="overloaded", retryable=True)
    yield trap("an end in the middle", begin + said, _with_usage(words, lost))
    yield trap("an end in the middle of an event", begin + said + said[: len(said) // 2], _with_usage(words, lost))
    yield trap("nothing at all", b"", Told(error="truncated", retryable=True))
    yield trap("an overload before the first word", begin + words.event(words.error), _with_usage(words, overloaded))
    yield trap(
        "an overload after the first word",
        begin + said + words.event(words.error),
        _with_usage(words, Told(TEXT, error="overloaded", retryable=True)),
    )
    for name, document, reason in (
        ("an error that says nothing", {"error": {}}, "server"),
        ("an error that is a text", {"error": "it broke"}, "server"),
        ("an error of an old server", {"object": "error", "message": "it broke", "code": 500}, "server"),
    ):
        told = Told(TEXT, error=reason, retryable=True)
        yield trap(name, begin + said + words.event(document), _with_usage(words, told))
    named, told_broken = b"event: error\ndata: it broke\n\n", Told(TEXT, error="server", retryable=True)
    yield trap("an event named error", begin + said + named, _with_usage(words, told_broken))
    field = b'error: {"code": 500, "message": "it broke", "type": "server_error"}\n\n'
    yield trap("an error in a field of its own", begin + said + field, _with_usage(words, told_broken))
    for name, data in (("no JSON", "{bad"), ("two documents in one event", '{"a": 1} {"b": 2}'), ("a list", "[1]")):
        told = Told(TEXT, error="protocol", retryable=True)
        yield trap(name, begin + said + f"data: {data}\n\n".encode(), _with_usage(words, told))


def _calling(words: Words, trap: Make) -> Iterator[Trap]:
    """Give answers that ask for tools."""
    begin, arguments = words.begin, '{"city": "K\u00f6ln"}'
    two = begin + words.call(0, "get_weather", arguments) + words.call(1, "get_time", "{}")
    asked = Told(calls=(("get_weather", {"city": "Köln"}), ("get_time", {})), usage=words.usage, finish="tool_calls")
    yield trap("two calls", two + words.end("calls"), asked)
    yield trap("calls, and stop as the reason", two + words.end("stop"), asked)
    cut = begin + words.call(0, "get_weather", '{"city": "K') + words.end("length")
    refused = Told(calls=(("get_weather", None),), usage=words.usage, finish="tool_calls")
    yield trap("arguments that the length limit cut", cut, refused)
    wrong = begin + words.call(0, "get_weather", "[1]") + words.end("calls")
    yield trap("arguments that are no object", wrong, refused)
    broken = begin + words.call(0, "get_weather", '{"city": ')
    yield trap("an end in the middle of a call", broken, _with_usage(words, Told(error="truncated", retryable=True)))


def _with_usage(words: Words, told: Told) -> Told:
    """Add what a broken answer was billed: only Anthropic tells of tokens before the end."""
    usage = Usage(9, 0) if words is ANTHROPIC else None
    return Told(told.text, told.reasoning, told.calls, usage, told.finish, told.error, told.retryable)


TRAPS: dict[str, Trap] = {
    trap.name: trap for trap in (*(trap for words in DIALECTS for trap in common(words)), *special())
}
