"""How much room a turn's model has for messages; what could never fit is refused before the turn is accepted."""

from collections.abc import Sequence

from app.conversation.budget import Room
from app.conversation.tokens import TokenCounters, messages_tokens, tools_tokens
from app.conversation.windows import reserve_of, window_of
from app.domain.messages import Message
from app.domain.persona import Persona
from app.domain.policy import HistoryPolicy
from app.domain.tools import ToolSpec
from app.domain.turn import TurnOptions
from app.prompts.engine import fixed_tokens
from app.turn.preparation.draft import PhaseServices, TurnDraft
from app.turn.preparation.prompt import prompt_input


def room_for(
    model: str,
    persona: Persona,
    tools: Sequence[ToolSpec],
    options: TurnOptions,
    *,
    counters: TokenCounters,
    policy: HistoryPolicy,
    system: str | int,
) -> Room:
    """Give the room that prompt, tools and answer leave in the model's window; `system` is text or tokens."""
    counter = counters.of(model)
    window = window_of(model, policy)
    tokens = system if isinstance(system, int) else counter.text(system)
    return Room(
        model=model,
        window=window,
        system=messages_tokens([Message("system")], counter) + tokens,
        tools=tools_tokens(tools, counter),
        answer=reserve_of(window, options.max_tokens or persona.options.max_tokens),
        counter=counter,
    )


def room_of(draft: TurnDraft, services: PhaseServices) -> Room:
    """Give the room that a turn has beside what of its prompt is never cut."""
    counter = services.counters.of(draft.model)
    return room_for(
        draft.model,
        draft.chosen()[0],
        [*draft.runtime_tools, *draft.host_tools],
        draft.turn.options,
        counters=services.counters,
        policy=services.policy.history,
        system=fixed_tokens(prompt_input(draft), counter.text),
    )


def check_input(draft: TurnDraft, services: PhaseServices) -> None:
    """Raise TooLargeError when the input alone does not fit; nothing is stored then."""
    _, _, new = draft.chosen()
    draft.room = room_of(draft, services)
    draft.room.check([new.message], "The input")
