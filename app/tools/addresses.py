"""Which addresses are for everyone: a tool reaches no others unless its host is allowed to be private."""

import ipaddress


def is_private(host: str) -> bool:
    """Tell whether a literal address is not a public one; a name is judged when it is resolved."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    return not (inner or address).is_global or address.is_multicast
