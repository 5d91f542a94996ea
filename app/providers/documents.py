"""The JSON document of one event of a model's answer, read in the same way for every dialect."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from app.providers.errors import failure, in_band
from app.providers.wire import loads

Document = Mapping[str, Any]


def document_of(
    provider: str,
    event: str,
    data: bytes,
    secrets: Iterable[str],
    *,
    ours: Callable[[Document], bool] = lambda _: False,
) -> Document:
    """Give the document. Raises `ProviderError` for an in-band error and for what is not one JSON object.

    In a document that is `ours`, an event of the dialect by its form, no error is looked for.
    """
    try:
        document = loads(data)
    except ValueError:
        document = data.decode("utf-8", "replace") if event == "error" else None
    if isinstance(document, dict) and ours(document):
        return document
    error = in_band(provider, document, secrets, named_error=event == "error")
    if error is not None:
        raise error
    if not isinstance(document, dict):
        message = f"The model provider {provider} sent an event that is not one JSON object."
        raise failure("protocol", provider, message, retryable=True)
    return document
