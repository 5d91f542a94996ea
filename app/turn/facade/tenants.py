"""Organizations: told apart, or one for all (R115, R251). Asked first of all, so a refused call changes nothing."""

from dataclasses import replace

from app.domain.errors import OrganizationRefusedError
from app.domain.frozen import dataclass
from app.domain.policy import TenantPolicy
from app.domain.turn import Caller


@dataclass(frozen=True, slots=True)
class Tenants:
    """`single`: all calls belong to the default one unless they name another; `strict`: then they are refused."""

    policy: TenantPolicy

    def admit(self, caller: Caller) -> Caller:
        """Give the caller with the organization that the call is for; OrganizationRefusedError when it may not be."""
        named, policy = caller.organization_id.strip(), self.policy
        if not policy.single:
            return replace(caller, organization_id=named)
        if policy.strict and named not in {"", policy.default}:
            message = f"This service does not serve the organization {named!r}; leave organization_id out."
            raise OrganizationRefusedError(message, organization_id=named)
        if policy.strict and not policy.default:
            message = "This service serves one organization and names none: set FERMATA_DEFAULT_ORGANIZATION_ID."
            raise OrganizationRefusedError(message)
        return replace(caller, organization_id=named or policy.default)
