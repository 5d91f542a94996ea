"""The guards by name: those that ship, made from their options, and those that installed packages bring.

A package brings a guard by an entry point of the group `fermata.guardrails`: its name is the guard's, and it leads to a
guard, or to a class or function that makes one without arguments.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from app.domain.errors import ConfigurationError
from app.domain.frozen import dataclass
from app.guardrails.active import activate
from app.guardrails.options import GuardOptions, GuardrailSettings
from app.guardrails.registry import Guards, OnVerdict
from app.guardrails.rules.ceiling import Ceiling
from app.guardrails.rules.grounding import Ask, Grounding
from app.guardrails.rules.injection import PromptInjection
from app.guardrails.rules.leaks import SecretLeak
from app.guardrails.rules.moderation import Moderation, Opinion
from app.guardrails.rules.pii import Pii
from app.guardrails.rules.presidio import NAME as PRESIDIO
from app.guardrails.rules.presidio import Presidio, lack
from app.guardrails.rules.topics import Topics

GROUP: Final = "fermata.guardrails"


@dataclass(frozen=True, slots=True)
class Means:
    """What guards need of the rest of the service: a moderation endpoint, a model that judges, its own secrets."""

    moderate: Callable[[str], Awaitable[Opinion]]
    ask: Ask
    secrets: Sequence[str] = field(default=(), repr=False)


def shipped(options: GuardOptions, means: Means) -> dict[str, Any]:
    """Give the guards that ship."""
    moderation, grounding = options.moderation, options.grounding
    return {
        "pii": Pii(options.pii.action, options.pii.kinds, options.pii.stages),
        PRESIDIO: Presidio(**options.presidio.model_dump()),
        "secrets": SecretLeak(options.secrets.action, means.secrets),
        "prompt_injection": PromptInjection(options.prompt_injection.action),
        "ceiling": Ceiling(options.ceiling.ceilings()),
        "moderation": Moderation(
            means.moderate,
            action=moderation.action,
            categories=moderation.categories,
            timeout_ms=moderation.timeout_ms,
            fail_closed=moderation.fail_closed,
        ),
        "grounding": Grounding(
            means.ask,
            action=grounding.action,
            least=grounding.least,
            timeout_ms=grounding.timeout_ms,
            fail_closed=grounding.fail_closed,
        ),
    }


def installed(names: Iterable[str], points: Iterable[EntryPoint] | None = None) -> dict[str, Any]:
    """Load the guards of installed packages that are named; none that is not. ConfigurationError when one can't be."""
    wanted = set(names)
    found: dict[str, Any] = {}
    if not wanted:
        return found
    for point in entry_points(group=GROUP) if points is None else points:
        if point.name not in wanted:
            continue
        try:
            loaded = point.load()
            found[point.name] = loaded() if callable(loaded) else loaded
        except Exception as error:
            message = f"The guardrail {point.name!r} of {point.value} can't be loaded: {type(error).__name__}: {error}"
            raise ConfigurationError(message) from error
    return found


def build_guards(
    settings: GuardrailSettings,
    means: Means,
    *,
    named: Iterable[str] = (),
    on_verdict: OnVerdict | None = None,
) -> Guards:
    """Make the guards that the settings ask for, and those that personas name; installed ones only when they are named.

    ConfigurationError for a name that no guard has, for one whose package is not installed, and for a required guard
    that does not judge everything.
    """
    named = set(named)
    own = shipped(settings.guardrail_options, means)
    topics = Topics(settings.guardrail_deny_patterns, settings.guardrail_allow_patterns)
    own["topics"] = topics
    if PRESIDIO in {*settings.guardrails, *named}:
        # Now, since the first turn would have to wait for seconds.
        own[PRESIDIO].load()
    elif lack(settings.guardrail_options.presidio.model) is not None:
        # So that a persona that comes to name it later is refused, and not left without it.
        del own[PRESIDIO]
    by_name = {**installed({*settings.guardrails, *named} - set(own)), **own}
    unknown = [name for name in settings.guardrails if name not in by_name]
    if unknown:
        known = ", ".join(sorted(by_name))
        message = f"FERMATA_GUARDRAILS names guardrails that there are not: {', '.join(unknown)}. There are: {known}."
        raise ConfigurationError(message)
    everywhere = list(dict.fromkeys(settings.guardrails))
    if (settings.guardrail_deny_patterns or settings.guardrail_allow_patterns) and "topics" not in everywhere:
        everywhere.insert(0, "topics")
    return Guards(
        [activate(by_name[name], name) for name in everywhere],
        named=by_name,
        required=[entry.entry() for entry in settings.required_guardrails],
        mode=settings.guardrail_output_mode,
        max_held=settings.guardrail_max_held_characters,
        on_verdict=on_verdict,
    )
