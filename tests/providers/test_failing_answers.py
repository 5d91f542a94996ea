"""What comes of each way in which an answer is known to fail, in every dialect, and the table of them.

The table's lines are symptoms that libraries for models are known to get wrong. What begins with `trap ` is an entry of
`tests/providers/traps.py`, what begins with `http ` one of `tests/providers/failing_answers.py`, in each dialect that
the line names; the others are tests.
"""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from app.domain.errors import ProviderError
from app.domain.messages import Message
from app.providers.base import ModelRequest, TextPiece
from app.providers.calls import HttpPolicy
from app.providers.gateway import Gateway, GatewayPolicy, Route
from app.providers.http import ModelHttp
from app.providers.provider import HttpProvider
from app.providers.registry import ProviderRegistry
from tests.mock_model import Answer, ModelServer
from tests.providers.conftest import Transport
from tests.providers.failing_answers import BACKOFF, Came, failing_answers
from tests.providers.test_trap_table import names_in
from tests.providers.trap_words import CHAT, DIALECTS, TEXT, Words
from tests.providers.traps import TRAPS

ROOT = Path(__file__).parents[1]
REQUEST = ModelRequest("m", (Message("user", "hi"),))
ROUTE = Route("house:one", fallbacks=("house:two",))
PATIENCE = 60.0
ALL = tuple(words.name for words in DIALECTS)
NAMES = tuple(failing_answers(CHAT))

TABLE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "an error inside the stream, after output": (
        ALL,
        ("http an error in the stream, after output", "trap an overload after the first word"),
    ),
    "an error as the first event of a success": (
        ALL,
        ("http an error in the stream, first", "trap an overload before the first word"),
    ),
    "an error that is named by its object": (
        ALL,
        (
            "http an error of an old server, first",
            "http an error of an old server, after output",
            "trap an error of an old server",
        ),
    ),
    "an error in a field of its own": (
        ALL,
        (
            "http an error in a field of its own, first",
            "http an error in a field of its own, after output",
            "trap an error in a field of its own",
        ),
    ),
    "an error as a whole response, or a response that failed": (
        ("responses",),
        (
            "trap a failure with its bill",
            "providers/test_responses.py::test_an_error_inside_the_stream_is_raised",
            "providers/test_responses.py::test_a_failed_response_is_an_error_with_its_bill",
        ),
    ),
    "an end without a mark that it is one": (
        ALL,
        ("http an end, first", "http an end, after output", "trap an end in the middle", "trap nothing at all"),
    ),
    "a connection that drops": (
        ALL,
        (
            "http a reset, first",
            "http a cut, first",
            "http a cut, after output",
            "http eof behind a whole answer",
            "http cut behind a whole answer",
            "providers/test_dialects_loopback.py::test_an_answer_that_breaks_off_is_an_error",
            "providers/test_dialects_loopback.py::test_a_whole_answer_is_whole_whatever_the_connection_does_then",
        ),
    ),
    "JSON that is none": (
        ALL,
        ("http an event that is no JSON, first", "http an event that is no JSON, after output", "trap no JSON"),
    ),
    "events without data": (ALL, ("trap empty data", "trap ids and retries without data")),
    "a success that is a page or a document": (
        ALL,
        (
            "http a page in the place of a stream",
            "http a document in the place of a stream",
            "http an error in the place of a stream",
        ),
    ),
    "events without their names": (("anthropic", "responses"), ("trap events without their names",)),
    "parallel calls at one index": (
        ("chat", "anthropic", "responses"),
        ("trap parallel calls all at index 0",),
    ),
    "a name that each delta repeats": (("chat",), ("trap a name in every delta, and no id",)),
    "calls without index or id, and arguments as an object": (
        ("chat",),
        (
            "trap arguments as an object, as nothing, and never",
            "providers/test_chat_calls.py::test_calls_are_put_together_however_they_are_numbered",
        ),
    ),
    "calls without an id, in the other dialects": (
        ("anthropic", "responses", "gemini"),
        (
            "providers/test_anthropic.py::test_a_call_whose_input_comes_whole_or_whose_id_is_missing_is_read",
            "providers/test_responses.py::test_a_call_with_an_id_that_is_missing_or_repeated_gets_its_own",
            "providers/test_gemini.py::test_arguments_come_as_an_object_as_text_or_not_at_all",
            "providers/test_gemini.py::test_a_repeated_call_id_gets_its_own",
        ),
    ),
    "stop, although tools are called": (ALL, ("trap calls, and stop as the reason",)),
    "running totals": (
        ("chat", "anthropic", "gemini"),
        ("trap a running total with every chunk is not added up",),
    ),
    "no usage": (ALL, ("trap no usage is none",)),
    "a wait of a second, of a date, of an hour": (
        ALL,
        (
            "http 429 with a short wait",
            "http 429 with a date that has passed",
            "http 429 with a date that is far",
            "http 429 with an hour",
            "providers/test_errors.py::test_the_wait_is_read_in_every_form",
        ),
    ),
    "a quota that is used up": (ALL, ("http 429 of a quota",)),
    "servers that are overloaded or broken": (ALL, ("http 529", "http 503", "http 502 with a page")),
    "a prompt that is too long, and a wrong key": (ALL, ("http 400 of the context's length", "http 401")),
    "events, blocks and deltas that nobody knows": (
        ALL,
        (
            "trap events and fields that nobody knows",
            "providers/test_anthropic.py::test_blocks_and_deltas_that_are_not_known_are_left_out",
            "providers/test_responses.py::test_events_and_items_that_are_not_known_are_left_out",
        ),
    ),
    "line ends, byte order marks, single bytes, odd signs, comments": (
        ALL,
        (
            "trap a whole answer",
            "trap lines that end in CR LF",
            "trap lines that end in CR",
            "trap a byte order mark",
            "trap comments that keep the connection alive",
            "providers/test_traps.py::test_what_a_server_sends_is_read_for_what_it_is",
            "providers/test_traps.py::test_it_is_read_the_same_over_sockets_and_the_next_answer_is_whole",
        ),
    ),
    "DONE without a space, and choices and deltas that are null": (
        ("chat",),
        (
            "trap null choices and null deltas",
            "providers/test_chat_decoder.py::test_done_alone_ends_an_answer_well",
        ),
    ),
}


@pytest.mark.parametrize("symptom", TABLE)
def test_each_failure_that_others_get_wrong_has_its_tests_in_each_dialect(symptom: str) -> None:
    dialects, proofs = TABLE[symptom]
    for proof in proofs:
        kind, _, name = proof.partition(" ")
        if kind == "trap":
            assert [dialect for dialect in dialects if f"{dialect}: {name}" not in TRAPS] == [], proof
        elif kind == "http":
            assert name in NAMES, proof
        else:
            file, _, test = proof.partition("::")
            assert test in names_in(ROOT / file), proof


def test_no_answer_that_fails_over_http_is_missing_in_the_table() -> None:
    named = {proof.removeprefix("http ") for _, proofs in TABLE.values() for proof in proofs if proof[:5] == "http "}
    assert named == set(NAMES)


async def test_each_answer_that_fails_ends_as_it_should_in_each_dialect(
    server: ModelServer, transport: Transport
) -> None:
    http = ModelHttp(HttpPolicy(transport=transport, verify_tls=False, drain_seconds=5.0))
    wrong: list[str] = []
    try:
        for words in DIALECTS:
            provider = HttpProvider("house", server.base_url, "sk-test-0123456789", http, dialect=words.dialect)
            for name, (answer, expected) in failing_answers(words).items():
                text, came = await asked(server, provider, words, answer, expected)
                if came != expected or text != (TEXT if expected.reason is None or expected.after_output else ""):
                    wrong.append(f"{words.name}, {name}: {came}, {text!r}")
    finally:
        await http.aclose()

    assert wrong == []


async def asked(
    server: ModelServer, provider: HttpProvider, words: Words, answer: Answer, expected: Came
) -> tuple[str, Came]:
    """Ask two models of which the first one gives the answer, as often as it is expected to be asked."""
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    policy = GatewayPolicy(attempts=2, backoff_seconds=BACKOFF)
    gateway = Gateway(ProviderRegistry([provider]), policy, sleep=wait, chance=lambda: 1.0)
    whole = {"steps": [{"raw": words.begin + words.say(TEXT) + words.end("stop")}], "bare": True}
    server.seen.scripts.clear()
    server.script(*[answer] * expected.asked, whole)
    before = len(server.seen.requests)
    text, error = "", None
    try:
        async with asyncio.timeout(PATIENCE), aclosing(gateway.stream(ROUTE, REQUEST)) as events:
            async for event in events:
                text += event.text if isinstance(event, TextPiece) else ""
    except ProviderError as caught:
        error = caught
    models = [_model_of(request) for request in server.seen.requests[before:]]
    return text, Came(
        models.count("one"),
        tuple(waits),
        served=models[-1] == "two",
        reason=None if error is None else error.reason,
        status=None if error is None else error.status,
        after_output=error is not None and error.after_output,
    )


def _model_of(request: dict[str, object]) -> str:
    """Give the model of a recorded request: it stands in the body, or in the path."""
    body = request["body"]
    assert isinstance(body, dict)
    return str(body.get("model") or str(request["path"]).rpartition("/")[2].partition(":")[0])
