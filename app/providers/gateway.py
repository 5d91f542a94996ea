"""The one place that retries and falls back to other models (R283 to R289).

Nothing of an attempt is given out before its first text, reasoning or call, so until then another attempt, or another
model, can take its place unseen. After that a failure is the step's failure: text is never told twice.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import field, replace

from app.domain.errors import ProviderError, ProviderUnavailableError
from app.domain.frozen import dataclass
from app.domain.generators import aclosing
from app.domain.usage import Hop, Usage
from app.providers.admission import DEFAULT_LIMIT, Admission, NoPlaceError
from app.providers.attempts import AttemptFailed, AttemptRecord, GatewayEvent, Serving
from app.providers.base import ModelRequest, Provider, UsageReport
from app.providers.errors import failure
from app.providers.health import Health, HealthPolicy
from app.providers.registry import ProviderRegistry

_OF_THE_KEY = frozenset({"auth", "quota", "rate_limited"})
_TRIED_AGAIN = frozenset({"auth", "quota"})


@dataclass(frozen=True, slots=True)
class GatewayPolicy:
    """How often, how long, and where else. `fallbacks` are model ids for routes that name none of their own.

    A `Retry-After` above its cap is not waited for: the next model is asked at once, or the step fails.
    """

    attempts: int = 3
    backoff_seconds: float = 0.5
    backoff_cap_seconds: float = 8.0
    retry_after_cap_seconds: float = 20.0
    total_seconds: float = 600.0
    admitted: int = DEFAULT_LIMIT
    admission_seconds: float = 10.0
    admitted_by: Mapping[str, int] = field(default_factory=dict)
    """Places of providers that have a limit of their own."""

    fallbacks: tuple[str, ...] = ()
    stays: frozenset[str] = frozenset({"invalid_request", "context_length"})
    """Reasons that no other model is asked for: it would refuse as well, or answer something else."""

    health: HealthPolicy = field(default_factory=HealthPolicy)


@dataclass(frozen=True, slots=True)
class Route:
    """Which model to ask, and which others when it can't. `fallbacks` None means the policy's, empty means none.

    `start` is the hop that served an earlier step of the turn: no hop before it is asked. `api_keys` are the caller's
    own, by provider. `attempts` and `total_seconds` replace the policy's when they are less.
    """

    model_id: str
    fallbacks: tuple[str, ...] | None = None
    start: Hop | None = None
    attempts: int | None = None
    api_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    total_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class _Hop:
    number: int
    provider: Provider
    model: str
    api_key: str | None = field(repr=False)

    @property
    def key(self) -> tuple[str, str]:
        return self.provider.name, self.model


class Gateway:
    """Streams one step's answer from whichever model of a route can give it."""

    def __init__(
        self,
        registry: ProviderRegistry,
        policy: GatewayPolicy | None = None,
        *,
        on_attempt: Callable[[AttemptRecord], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._registry = registry
        self._policy = policy or GatewayPolicy()
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._health = Health(self._now, self._policy.health)
        self._admission = Admission(self._policy.admitted, self._policy.admission_seconds, self._policy.admitted_by)
        self._on_attempt = on_attempt
        self._sleep = sleep
        self._chance = chance

    def check(self, route: Route) -> None:
        """Raise `ProviderUnavailableError` when the route's first model can't be asked as things are set up."""
        self._hop(*self._chain(route)[0], route)

    @property
    def registry(self) -> ProviderRegistry:
        """The providers behind the gateway."""
        return self._registry

    async def stream(
        self, route: Route, request: ModelRequest, on_attempt: Callable[[AttemptRecord], None] | None = None
    ) -> AsyncGenerator[GatewayEvent, None]:
        """Stream the answer: `Serving` once, then the provider's events; `AttemptFailed` for each billed failure.

        The request's model and key are replaced by the route's. `on_attempt` is told of each attempt when it has ended,
        also of one that its reader left. Raises `ProviderError` when the last attempt fails (its
        bill was given before), and `ProviderUnavailableError` when no attempt could be made. Closing the generator
        closes the socket; a reader that leaves counts against no provider.
        """
        total = min(self._policy.total_seconds, route.total_seconds or self._policy.total_seconds)
        deadline = asyncio.get_running_loop().time() + total
        attempts = min(self._policy.attempts, route.attempts or self._policy.attempts)
        failed: ProviderError | None = None
        for hop in self._open_hops(route):
            attempt = 1
            while True:
                sent = replace(
                    request,
                    model=hop.model,
                    api_key=hop.api_key,
                    deadline=min(deadline, request.deadline),
                    extra_body=request.extra_body if hop.number == 0 else {},
                    extra_headers=request.extra_headers if hop.number == 0 else {},
                )
                try:
                    async with aclosing(self._attempt(hop, attempt, sent, on_attempt)) as events:
                        async for event in events:
                            yield event
                except ProviderError as error:
                    failed = error
                else:
                    return
                if (bill := _take_bill(failed)) is not None:
                    yield AttemptFailed(bill, hop.number, *hop.key)
                wait = None if attempt >= attempts else self._wait(hop, failed, attempt, deadline)
                if wait is None:
                    break
                await self._sleep(wait)
                attempt += 1
            if failed.reason == "timeout" and _is_past(deadline):
                raise _too_late(failed, hop, total)
            if failed.after_output or failed.reason in self._policy.stays or _is_past(deadline):
                raise failed
        raise failed or self._nobody(route)

    async def _attempt(
        self, hop: _Hop, attempt: int, request: ModelRequest, on_attempt: Callable[[AttemptRecord], None] | None
    ) -> AsyncGenerator[GatewayEvent, None]:
        """Make one attempt; hold back what comes before its first output; record how it ended."""
        begun = self._now()
        watch = _Watch()
        error: ProviderError | None = None
        delivered = False
        try:
            with await self._admission.place(hop.provider.name, request.deadline):
                async with aclosing(hop.provider.stream(request)) as events:
                    held: list[GatewayEvent] = []
                    async for event in events:
                        if isinstance(event, UsageReport):
                            watch.usage = event.usage
                            if watch.first_output is None:
                                held.append(event)
                                continue
                        elif watch.first_output is None:
                            watch.first_output = self._now() - begun
                            yield Serving(hop.number, *hop.key)
                            for early in held:
                                yield early
                        yield event
            delivered = True
        except ProviderError as caught:
            error = caught
            error.after_output = watch.first_output is not None
            error.usage = error.usage or watch.usage
            raise
        finally:
            self._judge(hop, error, delivered=delivered)
            record = _record(hop, attempt, watch, error, delivered=delivered, seconds=self._now() - begun)
            for told in (self._on_attempt, on_attempt):
                if told is not None:
                    told(record)

    def _open_hops(self, route: Route) -> Iterator[_Hop]:
        """Give the hops that may be tried, each asked for its health only when its turn has come.

        When none is healthy, one that was closed for its key or its credit is tried all the same: the operator may
        have set that right, and such a refusal costs nothing.
        """
        skipped: list[_Hop] = []
        tried = False
        for place, (number, model_id) in enumerate(self._chain(route)):
            try:
                hop = self._hop(number, model_id, route)
            except ProviderUnavailableError:
                if place == 0:
                    raise  # it says what is wrong; a fallback that is not set up is none
                continue
            own_key = hop.api_key is not None and self._health.opened_by(hop.key) in _OF_THE_KEY
            if own_key or self._health.admit(hop.key):
                tried = True
                yield hop
            else:
                skipped.append(hop)
        if not tried:
            yield from (hop for hop in skipped[:1] if self._health.opened_by(hop.key) in _TRIED_AGAIN)

    def _chain(self, route: Route) -> list[tuple[int, str]]:
        """Give the models of the route by their numbers, from the one that served before, if one did.

        A model that served and is no longer among the fallbacks is asked first all the same: the turn goes on with it.
        """
        fallbacks = self._policy.fallbacks if route.fallbacks is None else route.fallbacks
        asked = (route.model_id, *fallbacks)
        chain = [(number, model_id) for number, model_id in enumerate(asked) if model_id not in asked[:number]]
        if route.start is None:
            return chain
        served = f"{route.start.provider}:{route.start.model}"
        place = next((number for number, model_id in chain if model_id == served), None)
        if place is None:
            return [(route.start.number, served), *(entry for entry in chain if entry[0] > route.start.number)]
        return chain[place:]

    def _hop(self, number: int, model_id: str, route: Route) -> _Hop:
        name = model_id.partition(":")[0]
        api_key = route.api_keys.get(name)
        provider, model = self._registry.resolve(model_id, has_key=api_key is not None)
        return _Hop(number, provider, model, api_key)

    def _wait(self, hop: _Hop, failed: ProviderError, attempt: int, deadline: float) -> float | None:
        """Give the seconds to wait before the same model is asked again; None when it is not asked again."""
        if failed.after_output or not failed.retryable:
            return None
        if self._health.opened_by(hop.key) is not None:
            return None
        wait = failed.retry_after
        if wait is None:
            longest = min(self._policy.backoff_cap_seconds, self._policy.backoff_seconds * 2 ** (attempt - 1))
            wait = longest / 2 + self._chance() * longest / 2
        elif wait > self._policy.retry_after_cap_seconds:
            wait = None
        if wait is None or asyncio.get_running_loop().time() + wait >= deadline:
            return None
        return wait

    def _judge(self, hop: _Hop, error: ProviderError | None, *, delivered: bool) -> None:
        own_key = hop.api_key is not None and error is not None and error.reason in _OF_THE_KEY
        if delivered:
            self._health.succeeded(hop.key)
        elif error is None or own_key or isinstance(error, NoPlaceError):
            self._health.left(hop.key)
        else:
            self._health.failed(hop.key, error.reason, error.retry_after)

    def _nobody(self, route: Route) -> ProviderError | ProviderUnavailableError:
        """Make the error for a route on which every circuit is open."""
        provider, _, model = route.model_id.partition(":")
        seconds = self._health.seconds_left((provider, model))
        message = f"The model {route.model_id} failed repeatedly and is left alone for {seconds:.0f} seconds more."
        return ProviderUnavailableError(message, provider=provider, retry_after=round(seconds))


@dataclass(slots=True)
class _Watch:
    usage: Usage | None = None
    first_output: float | None = None


def _record(
    hop: _Hop, attempt: int, watch: _Watch, error: ProviderError | None, *, delivered: bool, seconds: float
) -> AttemptRecord:
    return AttemptRecord(
        provider=hop.provider.name,
        model=hop.model,
        hop=hop.number,
        attempt=attempt,
        outcome="delivered" if delivered else "abandoned" if error is None else "failed",
        reason=None if error is None else error.reason,
        status=None if error is None else error.status,
        usage=watch.usage if error is None else error.usage,
        first_output_seconds=watch.first_output,
        seconds=seconds,
    )


def _take_bill(failed: ProviderError) -> Usage | None:
    """Take the bill out of the error, so that it is told once; nothing billed is no bill."""
    bill, failed.usage = failed.usage, None
    return bill if bill is not None and bill.total_tokens else None


def _is_past(deadline: float) -> bool:
    return asyncio.get_running_loop().time() >= deadline


def _too_late(failed: ProviderError, hop: _Hop, seconds: float) -> ProviderError:
    """Make the error of an answer that is not whole within the step's time."""
    message = f"The model {hop.provider.name}:{hop.model} did not finish its answer within {seconds:g} seconds."
    error = failure("timeout", hop.provider.name, message, retryable=False)
    error.after_output = failed.after_output
    return error
