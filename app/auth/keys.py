"""API keys: known by their SHA-256, compared in constant time."""

import hmac
from collections.abc import Sequence
from hashlib import sha256

from app.auth.principal import ANYBODY, USUAL_SCOPES, Principal, Scope
from app.domain.frozen import dataclass


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key: its name, the SHA-256 of the key in lower-case hexadecimal, the organization it acts in."""

    name: str
    sha256: str
    organization_id: str = ""
    scopes: frozenset[Scope] = USUAL_SCOPES


class KeyRing:
    """All keys of the service. An empty ring means that authentication is off."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        """Keep the keys; their order does not matter."""
        self._keys = tuple(keys)

    @property
    def required(self) -> bool:
        """Tell whether a call needs a key."""
        return bool(self._keys)

    def identify(self, presented: str | None) -> Principal | None:
        """Give the principal of a presented key; None when a key is needed and this one is not known.

        Every known digest is compared, whichever matches, so the time tells nothing.
        """
        if not self._keys:
            return ANYBODY
        if not presented:
            return None
        digest = sha256(presented.encode("utf-8", "surrogatepass")).hexdigest()
        matches = [key for key in self._keys if hmac.compare_digest(key.sha256.encode(), digest.encode())]
        if not matches:
            return None
        key = matches[0]
        return Principal(key.name, key.organization_id, key.scopes)
