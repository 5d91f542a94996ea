"""Optional fields that a server or a model may refuse: the request goes out once more without them.

Which field a refusal is about is read from its words, since no two servers have a code for it. A value that is out of
bounds is the caller's own fault and stays an error: what is looked for is that a field is not known or not supported.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from app.domain.frozen import dataclass

_NOT_TAKEN: Final = (
    r"(?:unsupported|unrecognized|unknown|unexpected|deprecated|extra inputs|removed|only the default"
    r"|(?:not|n't|no longer|cannot) (?:be )?(?:support|allow|permit|available|accept|used))"
)
_LOOK: Final = re.IGNORECASE | re.DOTALL


@dataclass(frozen=True, slots=True)
class Refusal:
    """Words of a refusal, and the fields that it is about, each as a path of names with dots.

    The words are a pattern that is compiled when a server first refuses something.
    """

    words: str
    fields: tuple[str, ...]


def refusal(words: str, *fields: str) -> Refusal:
    """Make a refusal that any of the words tells, in whatever case."""
    return Refusal(words, fields)


def not_taken(name: str, *fields: str) -> Refusal:
    """Make the refusal of a name that the server does not take."""
    return refusal(rf"\b{name}\b.*{_NOT_TAKEN}|{_NOT_TAKEN}.*\b{name}\b", *fields)


SAMPLING: Final = (
    refusal(r"\btemperature\b.*\btop_p\b.*(?:both|only one)", "top_p"),
    not_taken("temperature", "temperature"),
    not_taken("top_p", "top_p"),
)
"""Models that reason take no temperature, and some take it or `top_p`, not both."""


def refused_fields(refusals: tuple[Refusal, ...], message: str) -> tuple[str, ...]:
    """Give the fields of the first refusal that the message is; none when it is about something else."""
    return next((one.fields for one in refusals if re.search(one.words, message, _LOOK)), ())


def has_field(body: Any, path: str) -> bool:
    """Tell whether the body has the field; of a list, whether any of its entries has it."""
    if isinstance(body, list):
        return any(has_field(entry, path) for entry in body)
    name, _, rest = path.partition(".")
    if not isinstance(body, Mapping) or name not in body:
        return False
    return not rest or has_field(body[name], rest)


def without(body: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Give the body without the field, whose path may lead through lists; an object that is empty then goes with it."""
    if not has_field(body, path):
        return dict(body)
    name, _, rest = path.partition(".")
    inner = _inner(body[name], rest) if rest else None
    return {key: inner if key == name else value for key, value in body.items() if key != name or inner}


def _inner(value: Any, path: str) -> Any:
    if isinstance(value, list):
        return [_inner(entry, path) for entry in value]
    return without(value, path) if isinstance(value, Mapping) else value
