"""Prompt injection: inputs that try to replace the instructions of the persona, or to have them told.

Heuristics, not proof: each sign has a weight, and what is only quoted weighs less. They catch what is copied from
lists, and leave people alone who speak about such inputs.
"""

import re
from typing import Final, Literal

from app.domain.messages import text_of
from app.domain.turn import TurnInput
from app.guardrails.base import Action, Evaluation, GuardConfig, GuardContext
from app.guardrails.rules.wording import latin

_BEFORE: Final = r"(?:previous|prior|above|earlier|preceding|former|initial|original|existing|foregoing|system)"
_RULES: Final = r"(?:instructions?|prompts?|directions?|rules?|guidelines?|directives?|commands?|messages?)"
_DROP: Final = r"(?:ignore|disregard|forget|override|bypass|neglect|discard|drop)"
_HIDDEN: Final = r"(?:system|hidden|secret|initial|original|internal)"

# Patterns are compiled when they are first looked for, here and in `_QUOTED`: most processes have no such guard.
_SIGNS: Final[tuple[tuple[str, float, str], ...]] = (
    ("override", 1.0, rf"\b{_DROP}\b[^.!?\n]{{0,30}}\b{_BEFORE}\b[^.!?\n]{{0,20}}\b{_RULES}\b"),
    ("override", 1.0, rf"\b{_DROP}\b\W+(?:all\W+)?(?:of\W+)?(?:your|my|these|those)\W+(?:\w+\W+){{0,2}}{_RULES}\b"),
    ("override", 1.0, r"\bforget\b\W+(?:everything|all)\b[^.!?\n]{0,30}\b(?:told|learned|instructed|above|before)\b"),
    ("override", 1.0, r"\b(?:ignorier\w*|vergiss|missachte\w*)\b[^.!?\n]{0,40}\b(?:anweisung|instruktion|vorgabe)\w*"),
    (
        "override",
        1.0,
        (
            r"\b(?:ignore[zr]?|oublie[zr]?)\b[^.!?\n]{0,40}\b(?:instructions?|consignes?)\b[^.!?\n]{0,25}"
            r"\b(?:pr[eé]c[eé]dente?s?|ci-dessus|ant[eé]rieure?s?)\b"
        ),
    ),
    ("override", 1.0, r"\b(?:ignora|olvida|omite)\b[^.!?\n]{0,40}\b(?:instrucciones|indicaciones)\b"),
    ("override", 1.0, r"(?:忽略|无视|忘记)[^。\n]{0,15}(?:指令|指示|提示)"),
    ("role", 1.0, r"<\|?(?:im_start|start_header_id|system|endoftext|im_end)\|?>|\[/?INST\]|<</?SYS>>"),
    ("role", 0.6, r"(?m)^\s*(?:#{2,}\s*)?(?:system|developer)\s*(?:prompt|message)?\s*:\s*\S"),
    ("role", 0.6, r"\b(?:begin|end|start|new)\W+(?:of\W+)?(?:system|developer)\W+(?:prompt|message|instructions?)\b"),
    (
        "reveal",
        1.0,
        (
            r"\b(?:reveal|show|print|repeat|output|display|tell|give|leak|dump|recite)\b[^.!?\n]{0,25}\byour\b"
            rf"[^.!?\n]{{0,15}}\b{_HIDDEN}\W+(?:prompt|instructions?|message|rules?)\b"
        ),
    ),
    ("reveal", 0.6, rf"\bwhat\b[^.!?\n]{{0,20}}\byour\b[^.!?\n]{{0,10}}\b{_HIDDEN}\W+(?:prompt|instructions?)\b"),
    ("reveal", 1.0, r"\b(?:repeat|print|output)\b[^.!?\n]{0,25}\b(?:everything|text|words)\b[^.!?\n]{0,15}\babove\b"),
    ("jailbreak", 1.0, r"\byou\W+are\W+(?:now\W+)?(?-i:DAN|STAN|DUDE)\b|\bdo\W+anything\W+now\b"),
    ("jailbreak", 0.6, r"\b(?:enable|enter|activate)\b[^.!?\n]{0,15}\b(?:developer|god|jailbreak|sudo)\W+mode\b"),
    (
        "jailbreak",
        0.6,
        r"\b(?:answer|respond|reply|act)\b[^.!?\n]{0,25}\bwithout\b[^.!?\n]{0,15}\b(?:filters?|safety)\b",
    ),
    (
        "jailbreak",
        0.5,
        r"\b(?:pretend|act|behave|respond)\b[^.!?\n]{0,25}\b(?:no|without)\W+(?:rules?|restrictions?)\b",
    ),
    ("jailbreak", 0.5, r"\bfrom\W+now\W+on\b[^.!?\n]{0,25}\byou\W+(?:will|must|are|shall)\b"),
)
_QUOTED: Final = (
    r"\"[^\"\n]{3,300}\"|'[^'\n]{3,300}'|“[^”\n]{3,300}”|«[^»\n]{3,300}»|„[^“”\n]{3,300}[“”]|`[^`\n]{3,300}`"
)
_QUOTE_WEIGHT: Final = 0.4
BLOCK_AT: Final = 1.0
FLAG_AT: Final = 0.4


class PromptInjection:
    """Blocks (or only flags) inputs that look like prompt injection."""

    id = "prompt_injection"
    config = GuardConfig()

    def __init__(self, action: Literal["block", "flag"] = "block") -> None:
        """`action` is for what is sure; what is only likely is flagged."""
        self._action = Action(action)

    def evaluate_input(self, context: GuardContext, turn: TurnInput) -> Evaluation | None:
        """Weigh the signs in the input's text."""
        del context
        score, signs = weigh(text_of(turn.input))
        if score < FLAG_AT:
            return None
        action = self._action if score >= BLOCK_AT else Action.FLAG
        found = {"score": round(score, 2), "signs": signs}
        return Evaluation(action, "The input tries to change how it is answered.", "PROMPT_INJECTION", metadata=found)


def weigh(text: str) -> tuple[float, list[str]]:
    """Give the score of a text, and the kinds of signs in it; of each kind the strongest counts."""
    read = latin(text)
    quoted = [found.span() for found in re.finditer(_QUOTED, read)]
    best: dict[str, float] = {}
    for name, weight, pattern in _SIGNS:
        for found in re.finditer(pattern, read, re.IGNORECASE):
            inside = any(start <= found.start() and found.end() <= stop for start, stop in quoted)
            best[name] = max(best.get(name, 0.0), weight * (_QUOTE_WEIGHT if inside else 1.0))
    return sum(best.values()), sorted(best)
