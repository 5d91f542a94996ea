"""The test model server as a process: scripted over HTTP, asked by a real provider."""

from contextlib import aclosing

from app.domain.messages import Message, ToolCall
from app.domain.tools import ToolSpec
from app.providers.base import CallsReady, ModelRequest
from app.providers.chat import ChatProvider
from app.providers.http import ModelHttp
from tests.mock_model import running_mock_model
from tests.providers.reading import collect, failing, text_of


async def test_the_process_answers_by_itself_by_script_and_tells_what_it_saw() -> None:
    async with running_mock_model() as mock:
        http = ModelHttp()
        provider = ChatProvider("mock", mock.base_url, None, http)
        asked = Message("user", "how is the weather?")
        request = ModelRequest("m", (asked,), tools=(ToolSpec("get_weather", "tells it"),))

        events = await collect(provider.stream(request))
        calls = next(event for event in events if isinstance(event, CallsReady)).calls
        assert calls == (ToolCall("call_mock_1", "get_weather", {"city": "Berlin"}),)
        answered = (asked, Message("assistant", tool_calls=calls), Message("tool", "mild", tool_call_id="call_mock_1"))
        assert text_of(await collect(provider.stream(ModelRequest("m", answered)))) == "The tool says: mild"

        await mock.script({"status": 401, "body": {"error": {"message": "no"}}})
        assert (await failing(provider.stream(request)))[1].reason == "auth"
        await mock.script({"steps": [{"text": "for another"}]}, model="other")
        assert text_of(await collect(provider.stream(ModelRequest("m", (Message("user", "hi"),))))) == "You said: hi"

        await mock.script({"steps": [{"text": "a"}, {"hang": True}]})
        async with aclosing(provider.stream(ModelRequest("m", answered[1:]))) as stream:
            await anext(stream)
        assert await mock.closed(1) == [4]

        requests = await mock.requests()
        assert [request["violations"] for request in requests[:4]] == [[], [], [], []]
        assert requests[4]["violations"] == [
            "the first message after the system messages is from assistant, not from the user"
        ]
        assert requests[0]["path"] == "/v1/chat/completions"
        await mock.reset()
        assert await mock.requests() == []
        await http.aclose()
