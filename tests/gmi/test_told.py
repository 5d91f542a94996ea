"""What of a GMI's chunks reaches the stream, and how a failure inside a turn is told there."""

from app.domain.errors import ProviderError
from app.domain.usage import Usage
from app.providers.base import ModelRequest
from app.providers.errors import failure, in_band
from app.providers.scripted import call
from tests.requirements import requirement
from tests.stage import Stage, one, types


def overloaded(usage: Usage | None = None) -> ProviderError:
    error = failure("invalid_request", "scripted", "The provider said no.")
    error.usage = usage
    return error


@requirement("R291", "R292", "R293", "R294")
async def test_usage_steps_and_the_runtimes_own_results_are_not_forwarded_and_the_final_response_has_the_usage(
    stage: Stage,
) -> None:
    stage.provider.add(["Let me see.", call("current_time", id="c1"), Usage(5, 1)], ["Noon.", Usage(9, 2), Usage(9, 3)])

    chunks = await stage.play("What time is it?")

    assert set(types(chunks)) == {
        "system_progress", "metadata_update", "text_delta", "tool_call_request", "final_response",
    }  # fmt: skip
    assert one(chunks, "tool_call_request")["execution_mode"] == "internal"
    assert one(chunks, "final_response")["usage"] == Usage(14, 4).to_json()


@requirement("R295", "R296", "R299", "R300", "R301", "R302", "R303", "R304")
async def test_a_failure_inside_the_turn_is_an_error_and_then_the_final_response_with_the_same_words(
    stage: Stage,
) -> None:
    stage.provider.add([call("current_time", id="c1"), Usage(5, 1)], ["Well", overloaded(Usage(4, 4))])

    chunks = await stage.play("What time is it?")

    assert [kind for kind in types(chunks) if kind in {"error", "final_response"}] == ["error", "final_response"]
    assert types(chunks)[-1] == "final_response"
    error, final = one(chunks, "error"), one(chunks, "final_response")
    assert (error["code"], error["message"]) == ("LLM_PROVIDER_ERROR", "The provider said no.")
    assert (final["error"]["code"], final["error"]["message"]) == (error["code"], error["message"])
    assert final["usage"] == Usage(9, 5).to_json()


@requirement("R299")
async def test_an_error_chunk_in_the_providers_stream_has_the_providers_code(stage: Stage) -> None:
    told = in_band("scripted", {"error": {"type": "invalid_request_error", "message": "bad prompt"}})
    assert told is not None
    stage.provider.add(["Well", told])

    chunks = await stage.play("Hello?")

    assert one(chunks, "error")["code"] == "LLM_PROVIDER_ERROR"
    assert "bad prompt" in one(chunks, "error")["message"]


@requirement("R297")
async def test_a_failure_without_a_code_has_the_gmis(stage: Stage) -> None:
    def burst(_: ModelRequest) -> str:
        message = "the script burst"
        raise ZeroDivisionError(message)

    stage.provider.add(burst)

    chunks = await stage.play("Hello?")

    assert one(chunks, "error")["code"] == "GMI_PROCESSING_ERROR"
    assert "the script burst" in one(chunks, "final_response")["error"]["message"]
