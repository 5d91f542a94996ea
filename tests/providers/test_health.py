"""The circuits of providers and models, on a clock that the test turns."""

from dataclasses import dataclass

import pytest

from app.providers.health import Health

KEY = ("openai", "m")


@dataclass
class Turned:
    """A clock."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("reason", "failures", "seconds"),
    [("quota", 1, 300), ("auth", 1, 1800), ("rate_limited", 3, 30), ("server", 5, 60), ("transport", 5, 60)],
)
def test_a_circuit_opens_after_its_failures_and_lets_one_probe_through_after_its_cooldown(
    reason: str, failures: int, seconds: float
) -> None:
    clock = Turned()
    health = Health(clock)

    for _ in range(failures):
        assert health.admit(KEY)
        health.failed(KEY, reason)
    assert not health.admit(KEY)
    clock.seconds += seconds - 1
    assert not health.admit(KEY)
    assert health.seconds_left(KEY) == 1
    clock.seconds += 1
    assert health.admit(KEY)
    assert not health.admit(KEY), "a second request must wait for the probe"


def test_a_probe_that_succeeds_closes_the_circuit() -> None:
    clock = Turned()
    health = Health(clock)
    health.failed(KEY, "quota")
    clock.seconds += 300

    assert health.admit(KEY)
    health.succeeded(KEY)

    assert health.admit(KEY)
    assert health.admit(KEY)
    assert health.opened_by(KEY) is None


def test_a_probe_that_fails_opens_the_circuit_at_once_for_whatever_reason() -> None:
    clock = Turned()
    health = Health(clock)
    health.failed(KEY, "quota")
    clock.seconds += 300

    assert health.admit(KEY)
    health.failed(KEY, "server")

    assert not health.admit(KEY)
    assert health.opened_by(KEY) == "server"


def test_a_probe_whose_reader_leaves_lets_the_next_one_probe() -> None:
    clock = Turned()
    health = Health(clock)
    health.failed(KEY, "quota")
    clock.seconds += 300

    assert health.admit(KEY)
    health.left(KEY)

    assert health.admit(KEY)


def test_a_success_forgets_failures_but_cuts_no_cooldown_short() -> None:
    health = Health(Turned())

    for _ in range(4):
        health.failed(KEY, "server")
    health.succeeded(KEY)
    health.failed(KEY, "server")
    assert health.admit(KEY)

    health.failed(KEY, "quota")
    health.succeeded(KEY)
    assert not health.admit(KEY)


@pytest.mark.parametrize("reason", ["invalid_request", "context_length", "content_filter"])
def test_faults_of_the_request_never_open_a_circuit(reason: str) -> None:
    health = Health(Turned())

    for _ in range(100):
        health.failed(KEY, reason)

    assert health.admit(KEY)


def test_the_wait_that_a_provider_asks_for_prolongs_the_cooldown_within_bounds() -> None:
    health = Health(Turned())

    for _ in range(3):
        health.failed(KEY, "rate_limited", retry_after=90.0)
    assert health.seconds_left(KEY) == 90

    for _ in range(3):
        health.failed(("other", "m"), "rate_limited", retry_after=1e9)
    assert health.seconds_left(("other", "m")) == 300


def test_models_of_one_provider_have_circuits_of_their_own() -> None:
    health = Health(Turned())
    health.failed(KEY, "quota")

    assert health.admit(("openai", "another"))
