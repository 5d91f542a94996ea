"""Personal data: addresses, telephone numbers, cards, accounts and keys, told from look-alikes by their checksums."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal

from app.domain.messages import text_of
from app.domain.turn import TurnInput
from app.guardrails.base import Action, Evaluation, GuardConfig, GuardContext, OutputChunk, Sources
from app.guardrails.rules.credentials import KEYS
from app.guardrails.terms import KINDS, Kind, Stage

_EMAIL: Final = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9](?:[\w.+-]{0,62}[\w+-])?"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,24}\b"
)
_CARD: Final = re.compile(r"(?<![\w.,-])(?:\d[ -]?){12,18}\d(?![\w-]|[.,]\d)")
_IBAN: Final = re.compile(r"\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}\b")
_PHONE: Final = re.compile(
    r"(?<![\w.,:/#+-])(?<!\d )(?:"
    r"(?:\+|00)[1-9]\d{0,2}[ .-]?(?:\(0?\d{1,4}\)[ .-]?)?\d{1,4}(?:[ ./-]?\d{2,4}){1,4}"
    r"|\(0?\d{2,5}\)[ .-]?\d{3,4}(?:[ .-]?\d{2,4}){1,3}"
    r"|0\d{2,4}[ /-]\d{3,4}(?:[ -]?\d{2,4}){0,3}"
    r"|[2-9]\d{2}([ .-])[2-9]\d{2}\1\d{4}"
    r")(?![\w-]|[.,:/]\d)"
)
_ISSUED: Final = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[689]\d)\d{11}|(?:6011|65\d\d|64[4-9]\d|62\d\d|35(?:2[89]|[3-8]\d))\d{12,15}"
)
"""First digits and lengths of the cards that there are."""
_IBAN_LENGTHS: Final = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "CH": 21,
    "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18,
    "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23,
    "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "MC": 27,
    "MD": 24, "ME": 22, "MK": 19, "MT": 31, "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29,
    "RO": 24, "RS": 22, "SA": 24, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "TN": 24, "TR": 26, "UA": 29, "VA": 22,
    "VG": 24, "XK": 20,
}  # fmt: skip
_LEAST_PHONE: Final = 7
_MOST_PHONE: Final = 15
_ONE_DIGIT: Final = 9


class Pii:
    """Puts `[email]` and so on in the place of personal data, or blocks or flags it."""

    id = "pii"

    def __init__(
        self,
        action: Literal["sanitize", "block", "flag"] = "sanitize",
        kinds: Sequence[Kind] = KINDS,
        stages: Sequence[Stage] = ("input", "output"),
    ) -> None:
        """`kinds` are those that are looked for."""
        self.config = GuardConfig(can_sanitize=action == "sanitize", evaluate_streaming_chunks=action == "block")
        self.stages = tuple(stages)
        self._action = Action(action)
        self._kinds = tuple(kind for kind in KINDS if kind in kinds)

    def evaluate_input(self, context: GuardContext, turn: TurnInput) -> Evaluation | None:
        """Look at the input's text."""
        del context
        return self._judge(text_of(turn.input))

    def evaluate_output(self, context: GuardContext, chunk: OutputChunk, sources: Sources) -> Evaluation | None:
        """Look at the text."""
        del context, sources
        return None if chunk.text is None else self._judge(chunk.text)

    def _judge(self, text: str) -> Evaluation | None:
        return personal_data(self._action, *masked(text, self._kinds))


def personal_data(action: Action, left: str, counts: dict[str, int]) -> Evaluation | None:
    """Give the word on a text: what is left of it, and how many finds of each kind there were; None without any."""
    if not counts:
        return None
    reason = f"There is personal data in the text: {', '.join(sorted(counts))}."
    if action is Action.SANITIZE:
        return Evaluation(Action.SANITIZE, reason, "PII", metadata={"found": counts}, modified_text=left)
    return Evaluation(action, reason, "PII", metadata={"found": counts})


def masked(text: str, kinds: Sequence[Kind] = KINDS) -> tuple[str, dict[str, int]]:
    """Give the text with a word in the place of each find, and how many there were of each kind."""
    counts: dict[str, int] = {}
    for kind in kinds:
        text = _LOOKED_FOR[kind][0].sub(partial(_mask, kind, counts), text)
    return text, counts


def _mask(kind: Kind, counts: dict[str, int], found: re.Match[str]) -> str:
    if not _LOOKED_FOR[kind][1](found[0]):
        return found[0]
    counts[kind] = counts.get(kind, 0) + 1
    return f"[{kind}]"


def is_card(text: str) -> bool:
    """Tell whether it has a card issuer's first digits and length, and the checksum of Luhn."""
    digits = re.sub(r"\D", "", text)
    if _ISSUED.fullmatch(digits) is None or len(set(digits)) == 1:
        return False
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    return sum(value - _ONE_DIGIT if value > _ONE_DIGIT else value for value in doubled) % 10 == 0


def is_iban(text: str) -> bool:
    """Tell whether it has its country's length and the checksum of ISO 7064."""
    packed = re.sub(r"[ -]", "", text)
    if _IBAN_LENGTHS.get(packed[:2]) != len(packed):
        return False
    turned = packed[4:] + packed[:4]
    return int("".join(str(int(char, 36)) for char in turned)) % 97 == 1


def _is_phone(text: str) -> bool:
    digits = re.sub(r"\D", "", text)
    return _LEAST_PHONE <= len(digits) <= _MOST_PHONE and len(set(digits)) > 1


_LOOKED_FOR: Final[dict[Kind, tuple[re.Pattern[str], Callable[[str], bool]]]] = {
    "key": (KEYS, bool),
    "iban": (_IBAN, is_iban),
    "card": (_CARD, is_card),
    "email": (_EMAIL, bool),
    "phone": (_PHONE, _is_phone),
}
