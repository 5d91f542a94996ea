"""What a user thinks of an answer: read from a turn, and told in the session's trace."""

import pytest

from app.api.schemas.turns import TurnBody
from app.domain.feedback import Feedback, Polarity
from tests.stage import ADA, CHAT, running_stage
from tests.turn.playing import Playing, end


@pytest.mark.parametrize(
    ("given", "polarity"),
    [
        (Feedback(score=5), "positive"),
        (Feedback(score=4), "positive"),
        (Feedback(score=3), "neutral"),
        (Feedback(score=2), "negative"),
        (Feedback(), "neutral"),
        (Feedback(label="negative", score=5), "negative"),
        (Feedback(label="neutral", score=1), "neutral"),
    ],
)
def test_the_label_says_what_feedback_comes_to_and_else_the_score(given: Feedback, polarity: Polarity) -> None:
    assert given.polarity == polarity
    assert Feedback.from_json(given.to_json()) == given


def test_a_body_without_feedback_has_none_and_one_with_it_says_so() -> None:
    assert TurnBody(input="hi").to_domain(ADA, CHAT).user_feedback is None
    body = TurnBody.model_validate(
        {"input": "hi", "user_feedback": {"score": 2, "comment": "wrong", "turn_id": "turn_1"}}
    )
    assert body.to_domain(ADA, CHAT).user_feedback == Feedback(score=2, comment="wrong", turn_id="turn_1")


async def test_feedback_is_in_the_trace_and_a_bad_word_is_a_warning(shared_database: str) -> None:
    async with running_stage(shared_database) as stage:
        stage.provider.add("Ok.", "Ok.", "Ok.")
        await stage.play("Hi")
        await stage.play("No", user_feedback=Feedback(score=1, comment="wrong " * 50, turn_id="turn_1"))
        await stage.play("Yes", user_feedback=Feedback(label="positive"))

        page = await stage.runtime.session_trace(ADA, CHAT, cursor=None, limit=200, descending=False)
        found = [
            (entry.type, entry.message, dict(entry.details)) for entry in page.items if "feedback" in entry.message
        ]
        assert found == [
            (
                "warning",
                "The user's feedback is negative.",
                {"score": 1, "turn_id": "turn_1", "comment": ("wrong " * 50)[:100]},
            ),
            ("user_feedback", "The user's feedback is positive.", {"score": None, "turn_id": None, "comment": ""}),
        ]


async def test_a_gmi_of_the_hosts_own_is_told_what_its_user_thinks(shared_database: str) -> None:
    gmi = Playing([end()], [end()])
    given = Feedback(score=1, comment="wrong", turn_id="turn_1")
    async with running_stage(shared_database, gmis=gmi) as stage:
        await stage.play("Hi")
        await stage.play("No", user_feedback=given)
    assert [turn.feedback for turn in gmi.asked] == [None, given]
