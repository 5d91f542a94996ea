"""The prompt in turns: what the model is told, and how data is put in front of what the user says."""

from app.domain.messages import Message, text_of
from app.prompts.engine import Space, build
from app.prompts.slots import PromptInput, Slots
from app.turn.preparation.prompt import with_context
from tests.conversation.talking import routing
from tests.prompts.test_engine import PERSONA, count
from tests.requirements import requirement
from tests.stage import running_stage


@requirement("R258")
async def test_a_turn_that_was_asked_for_in_a_language_is_told_so(shared_database: str) -> None:
    async with running_stage(shared_database, language={"default": "en"}) as stage:
        stage.provider.add("Bonjour.")
        chunks = await stage.play("Good morning", target_language="fr", language_hint="en")
        assert text_of(stage.provider.requests[-1].messages[0].content).endswith(
            "Answer in the language with the code 'fr', whatever language you are addressed in."
        )
        assert routing(chunks)["prompt"]["sections"].keys() == {"persona", "language"}


def test_data_stands_in_front_of_the_newest_input_and_of_no_other_message() -> None:
    prompt = build(PromptInput(PERSONA, slots=Slots(memory=("Likes Klimt.",))), Space(count, 1000))
    parts = [{"type": "text", "text": "And this?"}, {"type": "image_url", "url": "https://example.org/a.png"}]
    past = [Message("user", "Hi"), Message("assistant", "Hello")]

    for content, told in (
        ("And now?", f"{prompt.context}\n\nAnd now?"),
        (parts, [{"type": "text", "text": prompt.context}, *parts]),
    ):
        *before, last = with_context([*past, Message("user", content)], prompt)
        assert before == past
        assert last.content == told
        said = text_of(last.content)[(last.metadata or {})["context_characters"] :]
        assert said.strip() == text_of(content)


def test_without_data_the_messages_stay_as_they_are() -> None:
    past = [Message("user", "Hi")]

    assert with_context(past, build(PromptInput(PERSONA), Space(count, 1000))) == past
