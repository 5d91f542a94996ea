"""Which language a turn is in, and which one it is answered in."""

from typing import Any

import pytest

from app.domain.language import Detected, Language, LanguagePolicy, negotiate

GERMAN = [Detected("DE", 0.9), Detected("nl", 0.1)]
SOME = LanguagePolicy(default="en", supported=("en", "de"))


@pytest.mark.parametrize(
    ("policy", "told", "source", "target", "confidence"),
    [
        (LanguagePolicy(), {}, "en", "en", 0.5),
        (LanguagePolicy(), {"hint": "FR"}, "fr", "fr", 1.0),
        (LanguagePolicy(), {"detected": GERMAN}, "de", "de", 0.9),
        (LanguagePolicy(), {"hint": "fr", "detected": GERMAN}, "fr", "fr", 1.0),
        (LanguagePolicy(), {"hint": "fr", "target": "ja"}, "fr", "ja", 1.0),
        (SOME, {"detected": GERMAN}, "de", "de", 0.9),
        (SOME, {"hint": "de-AT"}, "de-at", "de-at", 1.0),
        (SOME, {"detected": [Detected("fr", 0.8)]}, "fr", "en", 0.8),
        (SOME, {"hint": "fr"}, "fr", "en", 1.0),
        (SOME, {"hint": "fr", "target": "it"}, "fr", "it", 1.0),
        (LanguagePolicy("en", ("de", "en"), ("it", "de")), {"hint": "fr"}, "fr", "de", 1.0),
        (LanguagePolicy("en", ("de",), ("it",)), {"hint": "fr"}, "fr", "en", 1.0),
    ],
)
def test_what_the_host_says_goes_before_what_was_detected_and_that_before_the_default(
    policy: LanguagePolicy, told: dict[str, Any], source: str, target: str, confidence: float
) -> None:
    settled = negotiate(policy, **told)
    assert (settled.source, settled.target, settled.confidence) == (source, target, confidence)


def test_a_pivot_is_named_where_it_is_not_the_target() -> None:
    policy = LanguagePolicy(pivot="en")
    assert negotiate(policy, hint="de").pivot == "en"
    assert negotiate(policy, hint="en").pivot is None


def test_the_path_names_what_was_considered() -> None:
    assert negotiate(SOME, hint="fr").path == ("source:hint", "target:hint", "target:source", "target:fallback")


def test_its_stored_form_reads_back() -> None:
    settled = negotiate(LanguagePolicy(pivot="en"), hint="de")
    assert Language.from_json(settled.to_json()) == settled
    assert Language.from_json(None) is None
