"""How the user seems to feel: which inputs are events, what is kept of them, and what a turn makes of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.domain.persona import Persona, SentimentTracking
from app.turn.gmi import sentiment
from app.turn.gmi.sentiment import Score, Sentiment, felt
from tests.conversation.talking import routing
from tests.requirements import requirement
from tests.stage import ADA, CHAT, Stage, running_stage

TRACKING = SentimentTracking(enabled=True)


def events(*scores: float | tuple[float, str], errors: int = 0) -> list[list[str]]:
    """Give the events of inputs that come one after another, as `name/severity`."""
    kept: Any = {}
    found = []
    for entry in scores:
        value, text = entry if isinstance(entry, tuple) else (entry, "x" * 80)
        now = felt(kept, text, Score(value), TRACKING, errors=errors)
        kept = now.kept
        found.append([f"{event.name}/{event.severity}" for event in now.events])
    return found


@pytest.mark.parametrize(
    ("scores", "last"),
    [
        ((-0.2,), []),
        ((-0.4,), []),
        ((-0.7,), ["user_frustrated/medium"]),
        ((-0.4, -0.4), ["user_frustrated/high"]),
        ((-0.4, 0.0, -0.4), []),
        ((0.4, 0.4), []),
        ((0.6,), ["user_satisfied/low"]),
        ((0.4, 0.4, 0.4), ["user_satisfied/low"]),
        (((0.0, "I don't understand this"),), ["user_confused/medium"]),
        (((0.0, "what do you mean"),), ["user_confused/medium"]),
        (((0.0, "and then ??"),), ["user_confused/medium"]),
        (((0.0, "an explained variance"),), []),
        (tuple((0.0, "ok") for _ in range(3)), []),
        (tuple((0.0, "ok") for _ in range(4)), ["low_engagement/medium"]),
        ((0.0, 0.0, 0.0, 0.0), []),
    ],
)
def test_an_input_is_an_event_when_it_is_strong_or_lasts(scores: Any, last: list[str]) -> None:
    assert events(*scores)[-1] == last


def test_errors_of_the_trace_are_an_event_from_the_second_on() -> None:
    assert events(0.0, errors=1) == [[]]
    assert events(0.0, errors=2) == [["error_threshold_exceeded/high"]]


def test_many_negative_words_in_a_neutral_text_are_confusion() -> None:
    assert [event.name for event in felt({}, "x" * 80, Score(0.0, 3), TRACKING).events] == ["user_confused"]


def test_what_is_kept_is_bounded_and_tells_nothing_of_what_was_said() -> None:
    kept: Any = {}
    for _ in range(30):
        kept = felt(kept, "secret", Score(0.1), TRACKING).kept
    assert kept == {"polarity": "neutral", "run": 30, "lengths": [6] * 5, "scores": [0.1] * 10}


async def test_the_lexicon_tells_glad_from_angry_and_from_neither() -> None:
    scorer = Sentiment()

    assert (await scorer.score("Thanks, this is great!")).value > 0.6
    angry = await scorer.score("This is terrible, I hate it.")
    assert angry.value < -0.6
    assert angry.negative_words == 2
    assert (await scorer.score("The meeting is at noon.")).value == 0.0


def test_a_persona_that_needs_the_package_is_refused_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentiment, "PACKAGE", "not_installed_anywhere")
    with pytest.raises(ConfigurationError, match="pip install"):
        sentiment.check_persona(Persona("p", "P", "-", sentiment_tracking=TRACKING))
    sentiment.check_persona(Persona("p", "P", "-"))


def tracked(folder: Path, **more: Any) -> dict[str, Any]:
    """Write a persona that tracks sentiment, beside one that doesn't; gives the settings."""
    plain = {"id": "plain", "name": "Plain", "system_prompt": "Be brief."}
    told = {
        "id": "demo",
        "name": "Demo",
        "system_prompt": "Be kind.",
        "sentiment_tracking": {"enabled": True},
        "contextual_elements": [
            {
                "id": "calm",
                "type": "behavioral_guidance",
                "content": "Slow down.",
                "criteria": {"conversation_signals": ["user_frustrated"]},
            }
        ],
    }
    (folder / "demo.json").write_text(json.dumps({**told, **more}))
    (folder / "plain.json").write_text(json.dumps(plain))
    return {"personas_dir": folder, "personas_reload_seconds": 0}


async def trace(stage: Stage) -> list[str]:
    page = await stage.runtime.session_trace(ADA, CHAT, cursor=None, limit=200, descending=False)
    return [entry.message for entry in page.items if entry.type == "sentiment_event"]


@requirement("R255")
async def test_a_persona_that_tracks_sentiment_notices_and_another_does_not(
    tmp_path: Path, shared_database: str
) -> None:
    async with running_stage(shared_database, **tracked(tmp_path)) as stage:
        stage.provider.add(*["Ok."] * 4)
        angry = "This is terrible, I hate it!"

        block = routing(await stage.play("The meeting is at noon."))
        assert block["sentiment"] == {"score": 0.0, "polarity": "neutral", "events": []}
        block = routing(await stage.play(angry))
        assert [event["event"] for event in block["sentiment"]["events"]] == ["user_frustrated"]
        assert "Slow down." in str(stage.provider.requests[-1].messages[0].content)
        assert routing(await stage.play(angry))["sentiment"]["events"][0]["severity"] == "high"
        assert await trace(stage) == ["Noticed: user_frustrated."] * 2

        assert "sentiment" not in routing(await stage.play(angry, persona_id="plain"))
        assert len(await trace(stage)) == 2


async def test_a_turn_whose_input_can_not_be_scored_goes_on(
    tmp_path: Path, shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst() -> None:
        message = "no lexicon"
        raise OSError(message)

    monkeypatch.setattr(sentiment, "_load", burst)
    async with running_stage(shared_database, **tracked(tmp_path)) as stage:
        stage.provider.add("Ok.")
        chunks = await stage.play("This is terrible!")
        assert chunks[-1]["type"] == "final_response"
        assert chunks[-1]["error"] is None
