"""One mapping of statuses, bodies and in-band errors to `ProviderError` (R299); nothing secret gets into one.

A status is only a first guess: providers put the truth into the body's type and code, and overloads arrive inside a
200. `retryable` means that the same request to the same provider may succeed later.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.domain.errors import ProviderError
from app.providers.retry_after import parse_retry_after
from app.providers.wire import join_surrogates, loads

MESSAGE_LIMIT: Final = 300
HIDDEN: Final = "[hidden]"
RETRYABLE: Final[frozenset[str]] = frozenset(
    {"connect", "timeout", "rate_limited", "overloaded", "truncated", "transport", "server"}
)

_SHORTEST_SECRET: Final = 4
_SHORTEST_WORD: Final = 8
"""Shorter keys and words of headers are no secrets: a team's name, a version."""

_SECRET_LOOKS: Final = re.compile(
    r"(?:\b(?:sk|pk|rk|gsk|xai|csk|nvapi|hf|pplx|AIza)[-_]?[A-Za-z0-9*][\w*.-]{5,})|(?:[Bb]earer\s+[^\s,;\"']+)"
    r"|(?:\b(?=[\w*-]*\d)(?=[\w*-]*[A-Za-z*])[\w*-]{24,})"
)

_BY_STATUS: Final[dict[int, str]] = {
    401: "auth",
    402: "quota",
    403: "auth",
    408: "timeout",
    409: "server",
    424: "server",
    425: "overloaded",
    429: "rate_limited",
    498: "overloaded",
    500: "server",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}

# The first pattern that a type, code or message matches decides; order is the meaning.
_BY_WORD: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (reason, re.compile("|".join(patterns), re.IGNORECASE | re.MULTILINE))
    for reason, patterns in (
        (
            "quota",
            (
                r"insufficient[_ ](?:quota|credit|funds|balance)",
                r"exceeded your current quota",
                r"quota[_ ]exceeded",
                r"billing|payment[_ ]required|credit balance|out of credits?",
            ),
        ),
        (
            "context_length",
            (
                r"context[_ ]length|context[_ ]window|maximum context|prompt is too long",
                r"too many (?:input )?tokens|input (?:is )?too long|input token count.*exceeds",
                r"exceeds? the (?:maximum|available) (?:number of tokens|context)",
            ),
        ),
        ("overloaded", (r"overloaded|\bcapacity\b|unavailable|insufficient_system_resource|server is busy",)),
        ("rate_limited", (r"rate[_ -]?limit|too many requests|resource[_ ]exhausted|throttl",)),
        (
            "auth",
            (
                r"authentication|unauthorized|unauthenticated|permission[_ ](?:error|denied)",
                r"invalid[_ ]api[_ ]key|incorrect api key|api key not valid",
            ),
        ),
        (
            "content_filter",
            (r"content[_ ]?(?:filter|policy)|responsible ?ai|moderation|safety[_ ](?:error|filter|policy|system)",),
        ),
        ("timeout", (r"timed?[_ ]?out|deadline[_ ]exceeded",)),
        (
            "invalid_request",
            (r"invalid[_ ](?:request|argument|prompt)|not[_ ]found|bad[_ ]request|unsupported|unprocessable",),
        ),
        ("server", (r"(?:server|api|internal)[_ ]?error|^internal$",)),
    )
)
_KINDS_OF_BAD_REQUEST: Final = frozenset({"context_length", "content_filter", "quota", "auth"})
_CLIENT_FAULTS: Final = range(400, 500)
_SERVER_FAULTS: Final = range(500, 600)
_REDIRECTS: Final = range(300, 400)


def failure(
    reason: str,
    provider: str,
    message: str,
    *,
    status: int | None = None,
    retryable: bool | None = None,
    retry_after: float | None = None,
) -> ProviderError:
    """Make an error whose `retryable` follows from the reason unless it is given."""
    return ProviderError(
        message,
        reason=reason,
        provider=provider,
        status=status,
        retryable=reason in RETRYABLE if retryable is None else retryable,
        retry_after=retry_after,
    )


def from_response(
    provider: str, status: int, headers: Mapping[str, str], body: bytes, secrets: Iterable[str] = ()
) -> ProviderError:
    """Make the error of a response that is not a success; `body` may be cut off."""
    words, message = _told(body)
    reason = _reason_of_status(status, words, message)
    detail = shown(message, secrets)
    sentence = f"The model provider {provider} {_DEEDS.get(reason, 'failed')} (HTTP {status})."
    if status in _REDIRECTS:
        sentence = f"The model provider {provider} redirects (HTTP {status}); set its base URL to where it is."
    return failure(
        reason,
        provider,
        f"{sentence[:-1]}: {detail}" if detail else sentence,
        status=status,
        retry_after=parse_retry_after(headers) if reason in RETRYABLE else None,
    )


def in_band(
    provider: str, data: Any, secrets: Iterable[str] = (), *, named_error: bool = False
) -> ProviderError | None:
    """Find the error inside a document of a successful response; None when it holds none.

    Known forms: `error` as object (even an empty one) or text, `object: "error"`, `type: "error"`, an error inside the
    first choice, and, with `named_error`, any document of an event that is named `error`.
    """
    found = _find(data, named_error=named_error)
    if found is None:
        return None
    words, message = _words_of(found)
    status = _int_code(found)
    reason = _by_words(words) or _by_words([message])
    if reason is None:
        # A number 401 or 403 in here is about some upstream of the provider, not about this key.
        reason = _BY_STATUS.get(status or 0, "server")
        reason = "server" if reason == "auth" else reason
        if status in _CLIENT_FAULTS and status not in _BY_STATUS:
            reason = "invalid_request"
    detail = shown(message, secrets)
    sentence = f"The model provider {provider} {_DEEDS.get(reason, 'failed')} while it answered"
    wait = parse_retry_after(found) if isinstance(found, Mapping) else None
    return failure(reason, provider, f"{sentence}: {detail}" if detail else f"{sentence}.", retry_after=wait)


def secrets_of(*words: str | None) -> tuple[str, ...]:
    """Give what no error may show: keys and values of headers, and of such as `Bearer …` the words by themselves."""
    whole = [word for word in words if word is not None]
    told = {*whole, *(part for word in whole for part in word.split())}
    return tuple(sorted((word for word in told if len(word) >= _SHORTEST_WORD), key=len, reverse=True))


def shown(message: str, secrets: Iterable[str] = ()) -> str:
    """Give a provider's message as it may be shown: one line, short, without anything that looks like a key."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            message = message.replace(secret, HIDDEN)
    message = _SECRET_LOOKS.sub(HIDDEN, join_surrogates(message[: 20 * MESSAGE_LIMIT]))
    message = " ".join("".join(sign if sign.isprintable() else " " for sign in message).split())
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "\u2026"


_DEEDS: Final[dict[str, str]] = {
    "auth": "refused the API key",
    "quota": "says that the quota or credit is used up",
    "rate_limited": "limits the rate of requests",
    "overloaded": "is overloaded",
    "context_length": "refused a request that is longer than the model's context",
    "invalid_request": "refused the request",
    "content_filter": "refused the content",
    "timeout": "took too long",
}


def _reason_of_status(status: int, words: list[str], message: str) -> str:
    guessed = _BY_STATUS.get(status)
    told = _by_words(words) or _by_words([message])
    if guessed is None:
        if status in _SERVER_FAULTS:
            return "overloaded" if told == "overloaded" else "server"
        if status in _CLIENT_FAULTS:
            return told if told in _KINDS_OF_BAD_REQUEST else "invalid_request"
        return "protocol"
    if status in {403, 429} and told == "quota":
        return "quota"
    if status == 403 and told == "content_filter":  # noqa: PLR2004
        return "content_filter"
    return guessed


def _by_words(words: Iterable[str]) -> str | None:
    text = "\n".join(word for word in words if word)
    if not text:
        return None
    return next((reason for reason, pattern in _BY_WORD if pattern.search(text)), None)


def _told(body: bytes) -> tuple[list[str], str]:
    """Read type words and message out of an error body of any form; an HTML page says nothing worth showing."""
    try:
        document = loads(body)
    except ValueError:
        text = body.decode("utf-8", "replace").strip()
        return [], "" if text.startswith(("<", "{", "[")) else text
    if isinstance(document, list) and document:
        document = document[0]
    found = _find(document, named_error=True)
    return _words_of(found)


def _find(data: Any, *, named_error: bool) -> Any:
    if not isinstance(data, Mapping):
        return data if named_error else None
    error = data.get("error")
    if error is not None and error is not False and error != "":
        return error
    if data.get("object") == "error" or data.get("type") == "error":
        return data
    choices = data.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) and choices[0].get("error"):
        return choices[0]["error"]
    return data if named_error else None


def _words_of(found: Any) -> tuple[list[str], str]:
    if isinstance(found, str):
        return [], found
    if not isinstance(found, Mapping):
        return [], ""
    inner = found.get("error")
    if isinstance(inner, Mapping):
        return _words_of(inner)
    words = [str(found[key]) for key in ("type", "code", "status", "reason") if isinstance(found.get(key), str)]
    message = next(
        (found[key] for key in ("message", "detail", "msg", "error_message") if isinstance(found.get(key), str)), ""
    )
    if not message and isinstance(inner, str):
        message = inner
    param = found.get("param")
    if isinstance(param, str) and param and param not in message:
        message = f"{message} ({param})"
    return [word for word in words if word != "error"], message


def _int_code(found: Any) -> int | None:
    if not isinstance(found, Mapping):
        return None
    for key in ("code", "status", "status_code"):
        value = found.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:  # noqa: PLR2004
            return int(value)
    return None
