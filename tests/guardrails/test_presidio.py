"""The guard that Presidio brings, with the real library: what it finds, what it lets be, and no use of the network."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.domain.persona import Persona
from app.guardrails.base import Action
from app.guardrails.options import GuardOptions, GuardrailSettings
from app.guardrails.rules import presidio
from app.guardrails.rules.presidio import Presidio, masked
from app.guardrails.shipped import build_guards
from tests.guardrails.acting import CONTEXT, final, turn_of
from tests.guardrails.test_rules import IMPERSONAL
from tests.guardrails.test_shipped import MEANS

PERSONAL = [
    ("Write to ada.lovelace+x@mail.example.co.uk.", "Write to [email_address]."),
    ("ada@example.com, bob@example.org", "[email_address], [email_address]"),
    ("My card is 4111 1111 1111 1111.", "My card is [credit_card]."),
    ("IBAN DE89 3704 0044 0532 0130 00 please", "IBAN [iban_code] please"),
    ("Call +49 30 1234567 now", "Call [phone_number] now"),
    ("My social security number is 536-90-4399.", "My social security number is [us_ssn]."),
    ("Send it to 16Yeky6GMjeNkAiNcBY7ZhrLoMSgg1BoyZ now", "Send it to [crypto] now"),
    ("Schreib mir: ada@example.com – oder ruf an, 0171 2345678!",
     "Schreib mir: [email_address] – oder ruf an, [phone_number]!"),
]  # fmt: skip
LOOKALIKES = [
    *IMPERSONAL,
    "me@nowhere is no address, nor is user@host.notadomain",
    "See https://example.com/ada, and example.org.",
    "It was 12/05/1980 or 2026-11-30.",
    "The host 192.168.1.10 has the address 00:1B:44:11:3A:B7.",
    "Ada Lovelace lives in London.",
]


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """No look-up of a name and no connection from now on; gives those that were tried."""
    tried: list[Any] = []

    def refuse(*where: Any, **_: Any) -> None:
        tried.append(where)
        raise OSError(101, "there is no network here")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    yield tried
    assert tried == []


async def test_presidio_masks_what_is_personal_leaves_what_is_not_and_fetches_nothing(cut_off: list[Any]) -> None:
    guard = Presidio()
    for text, left in PERSONAL:
        said = await guard.evaluate_input(CONTEXT, turn_of(text))
        assert said is not None, text
        assert (said.action, said.reason_code, said.modified_text) == (Action.SANITIZE, "PII", left)
        assert "ada" not in f"{said.reason}{said.metadata}"
    for text in [*LOOKALIKES, "", "  "]:
        assert await guard.evaluate_output(CONTEXT, final(text), ()) is None, text
    assert await guard.evaluate_output(CONTEXT, final(None), ()) is None
    both = await guard.evaluate_output(CONTEXT, final("ada@example.com and 4111 1111 1111 1111, bob@example.com"), ())
    assert both is not None
    assert both.metadata == {"found": {"email_address": 2, "credit_card": 1}}


async def test_presidio_blocks_or_flags_what_the_operator_names() -> None:
    text = "The host 192.168.1.10 belongs to ada@example.com"
    for action in ("block", "flag"):
        options = GuardOptions.model_validate({"presidio": {"action": action, "entities": ["IP_ADDRESS"]}}).presidio
        guard = Presidio(**options.model_dump())
        assert guard.config.can_sanitize is False
        said = await guard.evaluate_output(CONTEXT, final(text), ())
        assert said is not None
        assert (said.action.value, said.metadata) == (action, {"found": {"ip_address": 1}})
        assert await guard.evaluate_output(CONTEXT, final("ada@example.com"), ()) is None


async def test_names_are_found_by_a_model_that_the_operator_has_put_there(tmp_path: Path, cut_off: list[Any]) -> None:
    import spacy

    model = spacy.blank("en")
    rules: Any = model.add_pipe("entity_ruler")
    rules.add_patterns([{"label": "PERSON", "pattern": "Ada Lovelace"}])
    model.to_disk(tmp_path / "names")
    guard = Presidio(model=str(tmp_path / "names"))
    said = await guard.evaluate_input(CONTEXT, turn_of("I am Ada Lovelace, ada@example.com, and live by a river."))
    assert said is not None
    assert said.modified_text == "I am [person], [email_address], and live by a river."
    assert await guard.evaluate_input(CONTEXT, turn_of("Ada is a language.")) is None


def test_finds_that_overlap_are_masked_as_one() -> None:
    assert masked("abcdefgh", [(1, 4, "x"), (2, 6, "y"), (2, 3, "z")]) == ("a[x]gh", {"x": 1})
    assert masked("abcdefgh", [(1, 3, "y"), (1, 5, "x"), (5, 6, "x")]) == ("a[x][x]gh", {"x": 2})


def guards(options: dict[str, Any] | None = None, *, named: tuple[str, ...] = ("presidio",)) -> Any:
    own = GuardOptions.model_validate({"presidio": options or {}})
    return build_guards(GuardrailSettings(guardrail_options=own), MEANS, named=named)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "no_such_model"}, "'no_such_model', which is neither .* Models are not fetched"),
        ({"model": "/no/such/folder"}, "'/no/such/folder', which is neither"),
        ({"model": "os"}, "'os', which is neither"),
        ({"model": "numpy"}, "can't load the spaCy model 'numpy'"),
        ({"model": "."}, "can't load the spaCy model '.'"),
        ({"entities": ["SHOE_SIZE"]}, "can't look for SHOE_SIZE; in 'en' it knows .*CREDIT_CARD"),
    ],
)
def test_what_is_not_there_is_said_at_the_start(options: dict[str, Any], says: str, cut_off: list[Any]) -> None:
    with pytest.raises(ConfigurationError, match=says):
        guards(options)


def test_without_the_package_the_guard_can_not_be_named_and_costs_nothing_unnamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(presidio, "PACKAGES", ("not_installed_anywhere",))
    with pytest.raises(ConfigurationError, match=r"pip install 'fermata\[presidio\]'"):
        guards()
    with pytest.raises(ConfigurationError, match="names guardrails that there are not: presidio"):
        guards(named=()).check_persona(Persona("p", "P", "-", guardrails=("presidio",)))
