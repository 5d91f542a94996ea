"""Languages of a turn: which one the user writes in, and which one is answered in."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.domain.frozen import dataclass

DEFAULT_CONFIDENCE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Detected:
    """A language that a text may be in, and how surely (0 to 1)."""

    code: str
    confidence: float


@dataclass(frozen=True, slots=True)
class LanguagePolicy:
    """Which languages are served; without `supported` all are.

    A turn is answered in its own language where that is served, else in the first of `fallbacks` that is, else in the
    `default`. With `detect`, its language is detected where the host does not tell it.
    """

    default: str = "en"
    supported: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    pivot: str | None = None
    detect: bool = True

    def serves(self, code: str) -> bool:
        """Tell whether the language, or the one that it is a variety of, is served."""
        served = {name.lower() for name in self.supported}
        return not served or code.lower() in served or code.lower().partition("-")[0] in served


@dataclass(frozen=True, slots=True)
class Language:
    """What was settled. `path` names what was considered, in order; `pivot` is a language to work in between."""

    source: str
    target: str
    confidence: float
    pivot: str | None = None
    path: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give the form that chunks show and stores keep."""
        shown: dict[str, Any] = {"source_language": self.source, "target_language": self.target}
        if self.pivot is not None:
            shown["pivot_language"] = self.pivot
        return {**shown, "confidence": round(self.confidence, 3), "negotiation_path": list(self.path)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> "Language | None":
        """Read the stored form; None where nothing was settled."""
        if not stored:
            return None
        return cls(
            source=stored["source_language"],
            target=stored["target_language"],
            confidence=stored["confidence"],
            pivot=stored.get("pivot_language"),
            path=tuple(stored.get("negotiation_path") or ()),
        )


def negotiate(
    policy: LanguagePolicy, *, hint: str | None = None, detected: Sequence[Detected] = (), target: str | None = None
) -> Language:
    """Settle the languages of a turn: what the host says, else what was detected, else the default."""
    if hint:
        source, confidence, origin = hint.lower(), 1.0, "hint"
    elif detected:
        source, confidence, origin = detected[0].code.lower(), detected[0].confidence, "detected"
    else:
        source, confidence, origin = policy.default, DEFAULT_CONFIDENCE, "default"
    path = [f"source:{origin}"]
    for reason, code, holds in _candidates(policy, source, hint, target):
        path.append(f"target:{reason}")
        if holds:
            pivot = policy.pivot if policy.pivot and policy.pivot != code else None
            return Language(source, code, confidence, pivot, tuple(path))
    return Language(source, policy.default, confidence, None, tuple(path))


def _candidates(
    policy: LanguagePolicy, source: str, hint: str | None, target: str | None
) -> Iterator[tuple[str, str, bool]]:
    """Give what may be answered in, best first: why, the language, and whether it holds."""
    if target:
        yield "asked_for", target, True
    if hint:
        yield "hint", hint.lower(), policy.serves(hint)
    yield "source", source, policy.serves(source)
    for code in policy.fallbacks or (policy.default,):
        yield "fallback", code, policy.serves(code)
    yield "default", policy.default, True
