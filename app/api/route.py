"""A route of the door that is worked out when it is first called.

To take a function's parameters and models apart takes the framework 2 ms, and there are forty-six routes, of which most
processes are asked for a few.
"""

import warnings
from collections.abc import Callable, Collection
from typing import Any

from fastapi.routing import APIRoute
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.routing import compile_path

from app.domain.importing import without


class Route(APIRoute):
    """A route that knows its address and its methods; all else of it is there from the first question on.

    Its operation is named by its function, so that generated clients keep their names.
    """

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, methods: Collection[str] | None = None, **options: Any
    ) -> None:
        """Take what the framework's route takes."""
        self.path, self.endpoint = path, endpoint
        self.name = str(options.get("name") or getattr(endpoint, "__name__", ""))
        self.methods = {method.upper() for method in methods or ("GET",)}
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._declared: dict[str, Any] | None = {
            **options,
            "name": self.name,
            "generate_unique_id_function": _operation_id,
        }

    def __getattr__(self, name: str) -> Any:
        """Work it out, and give what was asked for."""
        declared = self.__dict__.get("_declared")
        if declared is None:
            message = f"a route has no {name!r}"
            raise AttributeError(message)
        self._declared = None  # what is missing while it is worked out is missing
        try:
            with without("pydantic.v1"):  # the framework asks whether a model is one of those
                super().__init__(self.path, self.endpoint, methods=self.methods, **declared)
        except BaseException:
            self._declared = declared  # the next call is told the cause as well
            raise
        with warnings.catch_warnings():
            # The framework silences it around what is built at once: it hands names on that pydantic has no use for.
            warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
            for field in (self.body_field, self.response_field):
                if field is not None:
                    field._type_adapter.rebuild()  # noqa: SLF001 - there is no other way to it
        return getattr(self, name)


def _operation_id(route: APIRoute) -> str:
    return route.name
