"""The language of a turn: settled by the facade, told with every chunk, kept over a pause."""

from collections.abc import Sequence
from threading import Event
from typing import Any

import pytest

from app.domain.language import Detected, LanguagePolicy
from app.domain.turn import TurnInput
from app.providers.scripted import call
from app.turn.facade.detector import LangidDetector
from app.turn.facade.languages import WARMING, Languages
from tests.requirements import requirement
from tests.stage import WEATHER, result, running_stage, turn_input

SOME = {"default": "en", "supported": ["en", "de"]}


@requirement("R13")
async def test_every_chunk_tells_the_language_that_was_settled_before_the_turn(shared_database: str) -> None:
    async with running_stage(shared_database, language=SOME) as stage:
        stage.provider.add("Hallo.")
        chunks = await stage.play("Guten Tag", language_hint="de")
        assert {str(chunk["metadata"]["language"]) for chunk in chunks} == {
            str(
                {
                    "source_language": "de",
                    "target_language": "de",
                    "confidence": 1.0,
                    "negotiation_path": ["source:hint", "target:hint"],
                }
            )
        }


async def test_a_continuation_and_a_resume_keep_the_language_of_their_turn(shared_database: str) -> None:
    async with running_stage(shared_database, language=SOME) as stage:
        for chat, way in (("a", "results"), ("b", "resume")):
            stage.provider.add([call(WEATHER.name, {"city": "Berlin"}, id="c1")], "Warm.")
            first = await stage.play("Wetter?", language_hint="de", conversation=chat, tools=[WEATHER])
            pending = await stage.pending(chat)
            assert pending is not None
            chunks = (
                await stage.pass_results(first[-1]["stream_id"], result("c1"))
                if way == "results"
                else await stage.resume(pending, result("c1"))
            )
            assert {chunk["metadata"]["language"]["target_language"] for chunk in chunks} == {"de"}


async def test_without_a_setting_no_language_is_settled(shared_database: str) -> None:
    async with running_stage(shared_database) as stage:
        stage.provider.add("Hallo.")
        assert all("metadata" not in chunk for chunk in await stage.play("Guten Tag", language_hint="de"))


async def settled(languages: Languages, text: str, **more: Any) -> str:
    turn: TurnInput = await languages.settle(turn_input(text, **more))
    assert turn.language is not None
    return turn.language.source


class Fixed:
    """Detects what it is told to, or fails."""

    def __init__(self, found: Sequence[Detected] | None) -> None:
        self.found = found
        self.asked: list[str] = []

    def detect(self, text: str) -> Sequence[Detected]:
        self.asked.append(text)
        if self.found is None:
            message = "no model"
            raise RuntimeError(message)
        return self.found


@pytest.mark.parametrize(
    ("found", "source"),
    [([Detected("fr", 0.9)], "fr"), ([Detected("fr", 0.2)], "en"), ([], "en"), (None, "en")],
)
async def test_what_is_surely_detected_counts_and_a_failure_is_only_a_warning(found: Any, source: str) -> None:
    assert await settled(Languages(LanguagePolicy(), lambda: Fixed(found)), "un texte") == source


async def test_what_the_host_tells_is_not_looked_for() -> None:
    detector = Fixed([Detected("fr", 0.9)])
    languages = Languages(LanguagePolicy(), lambda: detector)
    assert await settled(languages, "x", language_hint="de") == "de"
    assert await settled(languages, "x", detected_languages=(Detected("it", 0.7),)) == "it"
    assert await settled(languages, " ") == "en"
    assert await settled(Languages(LanguagePolicy(detect=False), lambda: detector), "x") == "en"
    assert detector.asked == []


async def test_a_detector_that_is_slow_holds_no_turn_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.turn.facade.languages.PATIENCE_SECONDS", 0.01)
    goes = Event()

    class Slow(Fixed):
        def detect(self, text: str) -> Sequence[Detected]:
            goes.wait(5)
            return super().detect(text)

    assert await settled(Languages(LanguagePolicy(), lambda: Slow([Detected("fr", 0.9)])), "x") == "en"
    goes.set()


async def test_a_detector_is_made_ready_before_a_turn_asks_for_it_and_a_failure_to_is_let_be() -> None:
    detector = Fixed([Detected("fr", 0.9)])
    languages = Languages(LanguagePolicy(), lambda: detector)
    assert languages.detects
    await languages.warm()
    assert detector.asked == [WARMING]
    assert await settled(languages, "x") == "fr"
    broken = Languages(LanguagePolicy(), lambda: Fixed(None))
    await broken.warm()
    assert await settled(broken, "x") == "en"


def test_where_nothing_is_detected_nothing_is_made_ready() -> None:
    assert not Languages(None, lambda: Fixed([])).detects
    assert not Languages(LanguagePolicy(detect=False), lambda: Fixed([])).detects
    assert not Languages(LanguagePolicy()).detects


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Wie wird das Wetter morgen in Berlin?", "de"),
        ("What will the weather be like tomorrow?", "en"),
        ("¿Dónde está la biblioteca de la ciudad?", "es"),
        ("今日はいい天気ですね", "ja"),
    ],
)
def test_the_detector_that_ships_knows_common_languages(text: str, code: str, detector: LangidDetector) -> None:
    first, *_ = detector.detect(text)
    assert first.code == code
    assert first.confidence > 0.6


@pytest.fixture(scope="module", name="detector")
def shipped_detector() -> LangidDetector:
    return LangidDetector()
