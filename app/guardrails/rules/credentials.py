"""What keys and tokens of well-known services look like."""

import re
from collections.abc import Sequence
from typing import Final

SHORTEST: Final = 8
"""A secret of our own that is shorter is a word like any other."""

KEYS: Final = re.compile(
    r"""
    -----BEGIN[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----(?:[\s\S]*?-----END[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----)?
  | \b(?:
        sk-(?:proj-|ant-(?:api\d\d-)?|or-v1-|svcacct-)?(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}
      | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}
      | (?:AKIA|ASIA)[A-Z0-9]{16}
      | gh[pousr]_[A-Za-z0-9]{36,}
      | github_pat_[A-Za-z0-9_]{40,}
      | glpat-[A-Za-z0-9_-]{20,}
      | xox[abprs]-[A-Za-z0-9-]{10,}
      | AIza[A-Za-z0-9_-]{35}
      | ya29\.[A-Za-z0-9_-]{20,}
      | npm_[A-Za-z0-9]{36}
      | pypi-[A-Za-z0-9_-]{50,}
      | hf_[A-Za-z]{30,}
      | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
      | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}
    )(?![A-Za-z0-9_])
    """,
    re.VERBOSE,
)


def masked(text: str, own: Sequence[str] = ()) -> str:
    """Give the text with `[secret]` in the place of keys, and of each value of `own` that is long enough to be one."""
    left = KEYS.sub("[secret]", text)
    for value in own:
        if len(value) >= SHORTEST:
            left = left.replace(value, "[secret]")
    return left
