"""Embeddings of any server that speaks `/embeddings`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from app.domain.errors import ProviderError
from app.domain.frozen import dataclass
from app.domain.usage import Usage
from app.providers.calls import HttpCall
from app.providers.errors import failure, secrets_of
from app.providers.http import ModelHttp
from app.providers.wire import count, part

_BATCH: Final = 128


@dataclass(frozen=True, slots=True)
class Embeddings:
    """One vector for each text, in the order of the texts; all of one length."""

    vectors: tuple[tuple[float, ...], ...]
    usage: Usage


class Embedder(Protocol):
    """What embeds texts. `name` is the part of a model id before the colon."""

    name: str

    async def embed(self, model: str, texts: Sequence[str], *, dimensions: int | None = None) -> Embeddings:
        """Give the vectors of the texts. Raises `ProviderError`, and nothing else, when that can't be done."""
        ...


class EmbeddingClient:
    """Embeds texts with one provider; many texts go out in several requests."""

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None,
        http: ModelHttp,
        *,
        headers: Mapping[str, str] | None = None,
        batch: int = _BATCH,
    ) -> None:
        self.name = name
        self._url = base_url.rstrip("/") + "/embeddings"
        self._api_key = api_key
        self._http = http
        self._headers = dict(headers or {})
        self._batch = batch

    async def embed(self, model: str, texts: Sequence[str], *, dimensions: int | None = None) -> Embeddings:
        """Give the vectors of the texts. Raises `ProviderError`, also for an answer that does not fit the texts."""
        vectors: list[tuple[float, ...]] = []
        usage = Usage()
        for begin in range(0, len(texts), self._batch):
            batch = list(texts[begin : begin + self._batch])
            body: dict[str, Any] = {"model": model, "input": batch, "encoding_format": "float"}
            if dimensions is not None:
                body["dimensions"] = dimensions
            document = await self._http.ask(self._call(body))
            vectors += self._vectors(document, len(batch))
            told = part(document, "usage")
            usage += Usage(prompt_tokens=count(told.get("prompt_tokens") or told.get("total_tokens")))
        if len({len(vector) for vector in vectors}) > 1:
            raise self._misfit("vectors of several lengths")
        return Embeddings(tuple(vectors), usage)

    def _call(self, body: Mapping[str, Any]) -> HttpCall:
        key = {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        secrets = secrets_of(self._api_key, *self._headers.values())
        return HttpCall(self.name, self._url, {**key, **self._headers}, lambda: body, secrets)

    def _vectors(self, document: Any, expected: int) -> list[tuple[float, ...]]:
        """Read the vectors by their index: some servers give them in another order."""
        entries = document.get("data") if isinstance(document, Mapping) else None
        if not isinstance(entries, list):
            raise self._misfit("no vectors")
        placed: dict[int, tuple[float, ...]] = {}
        for place, entry in enumerate(entries):
            vector = entry.get("embedding") if isinstance(entry, Mapping) else None
            if not isinstance(vector, list) or not all(isinstance(number, int | float) for number in vector):
                raise self._misfit("something that is no vector")
            index = entry.get("index", place)
            placed[index if isinstance(index, int) else place] = tuple(float(number) for number in vector)
        if sorted(placed) != list(range(expected)):
            raise self._misfit(f"{len(entries)} vectors for {expected} texts")
        return [placed[place] for place in range(expected)]

    def _misfit(self, what: str) -> ProviderError:
        return failure("protocol", self.name, f"The model provider {self.name} answered with {what}.")
