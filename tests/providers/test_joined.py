"""A read that brings many pieces of text is told as few; a read that brings some is told as the model cut it."""

from collections.abc import AsyncGenerator
from itertools import repeat

from app.domain.messages import Message
from app.domain.usage import Usage
from app.providers.base import Finish, ModelRequest, ProviderEvent, ReasoningPiece, TextPiece, UsageReport
from app.providers.calls import HttpCall
from app.providers.chat import ChatProvider
from app.providers.dialect import Decoder
from app.providers.http import ModelHttp
from app.providers.provider import MOST_APART
from tests.providers.reading import collect

REQUEST = ModelRequest("m-1", (Message("user", "Go on."),))


class Reads(ModelHttp):
    """Answers with what it was given, a list for each read."""

    def __init__(self, *reads: list[ProviderEvent]) -> None:
        super().__init__()
        self._reads = reads

    async def stream(self, call: HttpCall, decoder: Decoder) -> AsyncGenerator[list[ProviderEvent], None]:
        del call, decoder
        for read in self._reads:
            yield read


async def told(*reads: list[ProviderEvent]) -> list[ProviderEvent]:
    return await collect(ChatProvider("p", "http://127.0.0.1:9", None, Reads(*reads)).stream(REQUEST))


def pieces(count: int) -> list[ProviderEvent]:
    return list(repeat(TextPiece("a"), count))


async def test_the_pieces_of_a_read_with_few_of_them_stay_as_they_are() -> None:
    assert await told(pieces(MOST_APART), pieces(1)) == pieces(MOST_APART + 1)


async def test_the_pieces_of_a_read_with_many_are_one() -> None:
    assert await told(pieces(MOST_APART + 1), pieces(2)) == [TextPiece("a" * (MOST_APART + 1)), *pieces(2)]


async def test_what_is_no_text_keeps_its_place_between_them() -> None:
    usage, thought, finish = UsageReport(Usage(1, 2)), ReasoningPiece("b"), Finish("stop")

    found = await told([*pieces(4), usage, thought, *pieces(5), finish])

    assert found == [TextPiece("aaaa"), usage, thought, TextPiece("aaaaa"), finish]
