"""What keys and tokens of well-known services look like."""

import re
from typing import Final

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
