"""Python's syntax, for tests that read sources."""

import ast


def parsed(source: str, tries: int = 10) -> ast.Module:
    """Parse as `ast.parse` does, anew where another thread parsed in the same moment.

    Python before 3.11.8 miscounts then (gh-106905).
    """
    try:
        return ast.parse(source)
    except SystemError:
        if tries == 1:
            raise
        return parsed(source, tries - 1)
