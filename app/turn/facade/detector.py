"""Tells the language of a text with py3langid, whose model comes with its package."""

from collections.abc import Sequence
from typing import Any, Final

from app.domain.language import Detected

GIVEN: Final = 3


class LangidDetector:
    """Loads the model, which takes a second and about 100 MB; then a text takes less than a millisecond."""

    def __init__(self) -> None:
        """Load it."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 - only who detects pays for it

        self._identifier: Any = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def detect(self, text: str) -> Sequence[Detected]:
        """Give the likeliest languages, by ISO 639-1 code where there is one."""
        ranked = self._identifier.rank(text)[:GIVEN]
        return [Detected(str(code), float(confidence)) for code, confidence in ranked]
