"""Moderation of any server that speaks `/moderations`."""

from collections.abc import Mapping
from typing import Final

from app.domain.frozen import dataclass
from app.providers.calls import HttpCall
from app.providers.errors import failure, secrets_of
from app.providers.http import ModelHttp
from app.providers.wire import part

DEFAULT_MODEL: Final = "omni-moderation-latest"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a moderation model says: whether the text is objectionable, in which ways, and how surely (0 to 1)."""

    flagged: bool
    categories: tuple[str, ...]
    scores: Mapping[str, float]


class ModerationClient:
    """Asks one provider about a text."""

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None,
        http: ModelHttp,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._url = base_url.rstrip("/") + "/moderations"
        self._api_key = api_key
        self._http = http
        self._headers = dict(headers or {})

    async def judge(self, text: str, model: str = DEFAULT_MODEL) -> Verdict:
        """Give the verdict on a text. Raises `ProviderError`: no answer is never taken for a good one."""
        key = {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        secrets = secrets_of(self._api_key, *self._headers.values())
        call = HttpCall(
            self.name, self._url, {**key, **self._headers}, lambda: {"model": model, "input": text}, secrets
        )
        document = await self._http.ask(call)
        results = document.get("results") if isinstance(document, Mapping) else None
        result = results[0] if isinstance(results, list) and results else None
        if not isinstance(result, Mapping) or not isinstance(result.get("flagged"), bool):
            raise failure("protocol", self.name, f"The model provider {self.name} answered without a verdict.")
        scores = part(result, "category_scores")
        return Verdict(
            flagged=result["flagged"],
            categories=tuple(sorted(name for name, found in part(result, "categories").items() if found)),
            scores={name: float(score) for name, score in scores.items() if isinstance(score, int | float)},
        )
