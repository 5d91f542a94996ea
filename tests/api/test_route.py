"""A route that is worked out when it is first called tells what is wrong with it, each time."""

from socket import socket

import pytest
from fastapi.exceptions import FastAPIError

from app.api.route import Route


async def broken(door: socket) -> None:
    """Ask for what no request can hold."""


async def sound(number: int) -> None:
    """Ask for a number."""


def test_a_route_that_can_not_be_worked_out_says_why_whenever_it_is_called() -> None:
    route = Route("/broken", broken)
    for _ in range(2):
        with pytest.raises(FastAPIError, match="socket"):
            _ = route.dependant


def test_a_route_has_what_the_frameworks_has_and_nothing_else() -> None:
    route = Route("/sound", sound, methods=["post"])
    assert [parameter.name for parameter in route.dependant.query_params] == ["number"]
    assert (route.methods, route.name, route.unique_id) == ({"POST"}, "sound", "sound")
    with pytest.raises(AttributeError, match="nothing"):
        _ = route.nothing
