"""Personal data as Presidio finds it: more kinds than the built-in patterns, and names where a spaCy model is named.

An optional package brings it. It is loaded at the start where it is to judge, and nothing is ever fetched: neither a
model nor the list of top-level domains.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Final, Literal

from app.domain.errors import ConfigurationError
from app.domain.messages import text_of
from app.domain.turn import TurnInput
from app.guardrails.base import Action, Evaluation, GuardConfig, GuardContext, OutputChunk, Sources
from app.guardrails.rules.pii import personal_data
from app.guardrails.terms import Stage

NAME: Final = "presidio"
PACKAGES: Final = ("presidio_analyzer", "tldextract")
USUAL: Final = (
    "CREDIT_CARD", "CRYPTO", "EMAIL_ADDRESS", "IBAN_CODE", "LOCATION", "MEDICAL_LICENSE", "NRP", "PERSON",
    "PHONE_NUMBER", "US_ITIN", "US_SSN",
)  # fmt: skip
"""What is looked for unless the operator says otherwise. Dates, addresses of pages and bare numbers are in most texts
without being anybody's, so they have to be asked for."""

Find = tuple[int, int, str]
"""Where it begins and ends, and what it is."""


class Presidio:
    """Puts `[email_address]` and so on in the place of personal data, or blocks or flags it.

    It judges whole texts and sentences, never pieces, since a look costs milliseconds and is made in a thread.
    """

    id = NAME

    def __init__(
        self,
        *,
        action: Literal["sanitize", "block", "flag"] = "sanitize",
        entities: Sequence[str] | None = None,
        language: str = "en",
        model: str | None = None,
        least: float = 0.4,
        stages: Sequence[Stage] = ("input", "output"),
        timeout_ms: float | None = None,
        fail_closed: bool = False,
    ) -> None:
        """Without `entities` the `USUAL` ones; `model` is an installed spaCy model or its folder."""
        self.config = GuardConfig(can_sanitize=action == "sanitize", timeout_ms=timeout_ms, fail_closed=fail_closed)
        self.stages = tuple(stages)
        self._action = Action(action)
        self._entities = entities
        self._language = language
        self._model = model
        self._least = least
        self._lock = Lock()
        self._look: Callable[[str], list[Find]] | None = None

    def load(self) -> None:
        """Load the package and the model, once. ConfigurationError when something that was named is not there."""
        with self._lock:
            if self._look is None:
                self._look = _analyzer(self._language, self._model, self._entities, self._least)

    async def evaluate_input(self, context: GuardContext, turn: TurnInput) -> Evaluation | None:
        """Look at the input's text."""
        del context
        return await self._judge(text_of(turn.input))

    async def evaluate_output(self, context: GuardContext, chunk: OutputChunk, sources: Sources) -> Evaluation | None:
        """Look at the text."""
        del context, sources
        return await self._judge(chunk.text or "")

    async def _judge(self, text: str) -> Evaluation | None:
        if not text.strip():
            return None
        left, counts = await asyncio.to_thread(self._masked, text)
        return personal_data(self._action, left, counts)

    def _masked(self, text: str) -> tuple[str, dict[str, int]]:
        self.load()
        assert self._look is not None  # noqa: S101 - for the type checker: `load` has set it or raised
        return masked(text, self._look(text))


def masked(text: str, finds: Iterable[Find]) -> tuple[str, dict[str, int]]:
    """Give the text with a word in the place of each find, and how many there were of each kind.

    Finds that overlap are one, named after the first of them.
    """
    counts: dict[str, int] = {}
    pieces: list[str] = []
    end = 0
    for begin, upto, kind in sorted(finds, key=lambda find: (find[0], -find[1])):
        if begin < end:
            end = max(end, upto)
            continue
        pieces += [text[end:begin], f"[{kind}]"]
        counts[kind] = counts.get(kind, 0) + 1
        end = upto
    return "".join(pieces) + text[end:], counts


def lack(model: str | None) -> str | None:
    """Give the sentence on what is not installed, the packages or the spaCy model; None if all is there."""
    if any(find_spec(package) is None for package in PACKAGES):
        return (
            f"The guardrail {NAME} needs a package that is not installed: pip install 'fermata[{NAME}]', "
            "or name the guardrail pii, which needs none."
        )
    if model is not None and not (Path(model).is_dir() or _is_installed(model)):
        return (
            f"The guardrail {NAME} is to use the spaCy model {model!r}, which is neither an installed package nor a "
            "folder. Models are not fetched: install it beside Fermata, or leave `model` out."
        )
    return None


def _is_installed(model: str) -> bool:
    """Tell whether a package of that name is installed: asked as Presidio asks, which fetches a model that is not."""
    try:
        distribution(model)
    except (PackageNotFoundError, ValueError):
        return False
    return True


def _analyzer(
    language: str, model: str | None, entities: Sequence[str] | None, least: float
) -> Callable[[str], list[Find]]:
    """Build Presidio's engine for one language, so that nothing in it reaches for the network."""
    lacking = lack(model)
    if lacking is not None:
        raise ConfigurationError(lacking)
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry  # noqa: PLC0415 - an extra that most do without
    from presidio_analyzer.nlp_engine import NoOpNlpEngine, SpacyNlpEngine  # noqa: PLC0415 - see above
    from tldextract import TLDExtract  # noqa: PLC0415 - see above

    models = [{"lang_code": language, "model_name": model or ""}]
    words = NoOpNlpEngine(models) if model is None else SpacyNlpEngine(models)
    try:
        words.load()
    except Exception as error:
        message = f"The guardrail {NAME} can't load the spaCy model {model!r}: {error}"
        raise ConfigurationError(message) from error
    registry = RecognizerRegistry(supported_languages=[language])
    registry.load_predefined_recognizers(languages=[language], nlp_engine=words)
    # The snapshot of the list that the package brings; by itself the recognizer would fetch the newest.
    domains = TLDExtract(suffix_list_urls=(), cache_dir=None)
    for recognizer in registry.recognizers:
        if recognizer.name == "EmailRecognizer":
            recognizer.validate_result = lambda found: bool(domains(found).fqdn)
    engine = AnalyzerEngine(registry=registry, nlp_engine=words, supported_languages=[language])
    known = set(engine.get_supported_entities(language))
    unknown = sorted(set(entities or ()) - known)
    if unknown:
        message = (
            f"The guardrail {NAME} can't look for {', '.join(unknown)}; in {language!r} it knows "
            f"{', '.join(sorted(known))}."
        )
        raise ConfigurationError(message)
    wanted = sorted(entities or known.intersection(USUAL))

    def look(text: str) -> list[Find]:
        found = engine.analyze(text, language, entities=wanted, score_threshold=least)
        return [(one.start, one.end, one.entity_type.lower()) for one in found]

    return look
