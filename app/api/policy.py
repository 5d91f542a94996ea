"""The door's rules: who is let in, from where, and how much may be sent."""

from collections.abc import Iterable
from dataclasses import field
from ipaddress import ip_address

from starlette.datastructures import Headers

from app.api.readers import ReaderLimits, Readers
from app.auth.keys import ApiKey, KeyRing
from app.auth.principal import Principal, Scope
from app.domain.errors import ForbiddenError, UnauthenticatedError, ValidationError
from app.domain.frozen import dataclass
from app.domain.turn import Caller


@dataclass(frozen=True, slots=True)
class DoorPolicy:
    """What the door is told by the settings. Sizes are bytes, times are seconds."""

    keys: tuple[ApiKey, ...] = ()
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 10 * 2**20
    heartbeat_seconds: float = 15.0
    readers: ReaderLimits = field(default_factory=ReaderLimits)


def key_of(name: str, sha256: str, organization: str, scopes: Iterable[str]) -> ApiKey:
    """Make a key of plain values, as settings hold them."""
    return ApiKey(name, sha256.lower(), organization, frozenset(Scope(scope) for scope in scopes))


class Door:
    """Decides who is let in."""

    def __init__(self, policy: DoorPolicy) -> None:
        """Keep the policy and its keys."""
        self.policy = policy
        self.readers = Readers(policy.readers)
        self._ring = KeyRing(policy.keys)
        self._hosts = frozenset(host.lower() for host in policy.allowed_hosts)

    def admit(self, headers: Headers, method: str) -> Principal:
        """Say who calls. Raises UnauthenticatedError, or without keys ForbiddenError for what comes from elsewhere.

        Without keys the service trusts this machine, on which a browser may show a page of any site. Such a page can
        have its name resolve to this machine (the Host header then still names it), and can post without asking
        first (the Origin header then names it).
        """
        if not self._ring.required:
            self._refuse_foreign_pages(headers, method)
        principal = self._ring.identify(_presented(headers))
        if principal is None:
            message = "Send a valid key as Authorization: Bearer <key>, or as X-API-Key."
            raise UnauthenticatedError(message)
        return principal

    def _refuse_foreign_pages(self, headers: Headers, method: str) -> None:
        host, origin = headers.get("host", ""), headers.get("origin", "")
        if not self._is_own(host):
            message = (
                f"The Host header is {host[:200]!r}. Without API keys only this machine's own names are taken: call "
                "127.0.0.1 or localhost, or add the name to FERMATA_ALLOWED_HOSTS."
            )
            raise ForbiddenError(message)
        same = origin.partition("://")[2].lower() == host.lower()
        if origin and method != "GET" and not same and origin not in self.policy.cors_origins:
            message = (
                f"The page that calls is of {origin[:200]!r}. Without API keys only pages of this service may change "
                "anything: add the origin to FERMATA_CORS_ORIGINS."
            )
            raise ForbiddenError(message)

    def _is_own(self, host: str) -> bool:
        name = _without_port(host.strip().lower())
        if name in self._hosts or name in {"", "localhost", "127.0.0.1"}:
            return True
        try:
            return ip_address(name).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Asker:
    """A principal, and what the address of its call says about user and organization."""

    principal: Principal
    user_id: str | None
    organization_id: str | None

    def require(self, scope: Scope) -> None:
        """Raise ForbiddenError when the key lacks the scope."""
        if scope not in self.principal.scopes:
            message = f"The key {self.principal.name!r} lacks the scope {scope.value!r}, which this call needs."
            raise ForbiddenError(message)

    def caller(self, user_id: str | None = None, organization_id: str | None = None) -> Caller:
        """Say for whom the call is; the arguments are what its body says.

        Raises ValidationError when body and address differ, ForbiddenError for an organization that is not the key's.
        """
        user = _agreed("user_id", self.user_id, user_id) or self.principal.name
        organization = _agreed("organization_id", self.organization_id, organization_id) or ""
        if not self.principal.authenticated:
            return Caller(user, organization)
        own = self.principal.organization_id
        if organization not in {"", own}:
            message = f"The key {self.principal.name!r} does not act in the organization {organization!r}."
            raise ForbiddenError(message)
        return Caller(user, own)


def _agreed(name: str, in_address: str | None, in_body: str | None) -> str | None:
    if in_address and in_body and in_address != in_body:
        message = f"{name} is {in_body!r} in the body and {in_address!r} in the address; send it once."
        raise ValidationError(message)
    return in_body or in_address


def _presented(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
