"""What all declarations in the file of tools share: variables of the environment in their texts."""

import re
from collections.abc import Mapping
from typing import Final

from app.domain.errors import ConfigurationError

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def filled(text: str, environment: Mapping[str, str], owner: str, place: str) -> str:
    """Give the text with its variables filled in; ConfigurationError for one that is not set."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in environment:
            message = f"{place}: {owner} needs the variable {found[1]}, and it is not set."
            raise ConfigurationError(message)
        return environment[found[1]]

    return _VARIABLE.sub(value, text)
