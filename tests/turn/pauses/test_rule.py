"""The rule by which a turn stops for its host."""

import pytest

from app.domain.chunks import GmiOutput
from app.turn.pauses.rule import stops_for_host
from tests.requirements import requirement
from tests.turn.playing import asks

CALLS = (asks("c1"), asks("c2"))


@requirement("R23", "R24", "R25", "R26")
@pytest.mark.parametrize(
    ("is_final", "calls", "stops"),
    [(False, CALLS, True), (True, CALLS, False), (False, (), False), (True, (), False)],
)
@pytest.mark.parametrize("text", [None, "", "Let me see."])
def test_only_output_that_is_not_final_and_names_calls_stops(
    is_final: bool,  # noqa: FBT001 - a parameter of the test
    calls: tuple[object, ...],
    stops: bool,  # noqa: FBT001 - a parameter of the test
    text: str | None,
) -> None:
    output = GmiOutput(is_final=is_final, tool_calls=calls, response_text=text)  # type: ignore[arg-type]
    assert stops_for_host(output) is stops
