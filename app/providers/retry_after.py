"""How long a provider asks to wait: `Retry-After` and its relatives in every form they are seen in."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

_MILLISECONDS: Final = "retry-after-ms"
_SECONDS: Final = ("retry-after", "retry_after", "retry_after_seconds")
_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", re.IGNORECASE)


def parse_retry_after(told: Mapping[str, Any], now: datetime | None = None) -> float | None:
    """Give the seconds to wait, never negative; None when nothing readable is told.

    Takes whole and broken seconds, milliseconds, an HTTP date and durations such as `1m2.5s`. An endless wait is given
    as infinity: the caller caps it.
    """
    lowered = {str(key).lower(): value for key, value in told.items()}
    milliseconds = _number(lowered.get(_MILLISECONDS))
    if milliseconds is not None:
        return milliseconds / 1000
    for name in _SECONDS:
        if (value := lowered.get(name)) is not None:
            seconds = _number(value)
            return _date_or_duration(str(value), now) if seconds is None else seconds
    return None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else max(0.0, number)


def _date_or_duration(text: str, now: datetime | None) -> float | None:
    matched = _DURATION.fullmatch(text.strip())
    if matched and any(matched.groups()):
        hours, minutes, seconds = (float(part or 0) for part in matched.groups())
        return hours * 3600 + minutes * 60 + seconds
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())
