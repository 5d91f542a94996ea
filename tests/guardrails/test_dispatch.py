"""The order in which guards are asked, and what comes of what they answer."""

# ruff: noqa: ARG002 - what a guard is given is fixed, and not each one needs all of it

import asyncio
from typing import Any

import pytest

from app.domain.errors import ConfigurationError, GuardrailBlockedError, GuardrailMissingError
from app.domain.persona import Persona
from app.guardrails.active import activate
from app.guardrails.asking import Asking
from app.guardrails.base import Action, Evaluation, GuardConfig, OutputChunk
from app.guardrails.dispatch import Verdict
from app.guardrails.incoming import judge_input, refuse_blocked, with_text
from app.guardrails.outgoing import OutputJudge
from app.guardrails.registry import Guards, Report
from app.guardrails.terms import RequiredGuard
from tests.guardrails.acting import (
    ALLOW,
    BLOCK,
    CONTEXT,
    FLAG,
    Acting,
    Hanging,
    InputOnly,
    OutputOnly,
    blocks,
    breaks,
    ids,
    replaces,
    sanitizer,
    says,
    streaming,
    turn_of,
)
from tests.streaming.scene import until

FINAL = OutputChunk("final_response", "the reply", is_final=True, fields={"final_response_text": "the reply"})


async def judged(*guards: Any, text: str = "hello") -> Verdict[Any]:
    return await judge_input(Asking(), [activate(guard) for guard in guards], CONTEXT, turn_of(text))


def judge_of(*guards: Any, sources: Any = ()) -> OutputJudge:
    return OutputJudge(Asking(), [activate(guard) for guard in guards], CONTEXT, sources)


async def test_without_guards_the_input_is_the_same_object() -> None:
    turn = turn_of("hello")
    verdict = await judge_input(Asking(), [], CONTEXT, turn)
    assert verdict.value is turn
    assert verdict.entries == ()


async def test_sanitizers_are_asked_in_order_each_with_the_text_so_far() -> None:
    first, second, other = sanitizer(replaces("a", "b"), "1"), sanitizer(replaces("b", "c"), "2"), Acting(says(None))
    verdict = await judged(first, other, second, text="a")
    assert (first.texts, second.texts, other.texts) == (["a"], ["b"], ["c"])
    assert verdict.value.input == "c"
    assert verdict.value.provider_api_keys == {"openai": "sk-secret"}


async def test_guards_see_no_provider_keys() -> None:
    seen: list[Any] = []

    class Curious:
        def evaluate_input(self, context: object, turn: Any) -> None:
            seen.append(turn.provider_api_keys)

    await judged(Curious())
    assert seen == [{}]


async def test_a_block_of_a_sanitizer_ends_the_asking() -> None:
    later, other = sanitizer(says(ALLOW)), Acting(says(ALLOW))
    verdict = await judged(sanitizer(says(BLOCK), "1"), later, other)
    assert verdict.block is not None
    assert verdict.block.code == "NOT_THAT"
    assert (later.asked, other.asked) == ([], [])


async def test_a_guard_that_may_not_sanitize_only_flags() -> None:
    verdict = await judged(Acting(replaces("hello", "bye"), "1"))
    assert verdict.value.input == "hello"
    assert verdict.entries[0].evaluation.action is Action.FLAG
    assert "taken as a flag" in (verdict.entries[0].evaluation.reason or "")


async def test_the_others_are_asked_at_once_and_told_in_their_order() -> None:
    both = asyncio.Barrier(2)

    class Meets(Acting):
        async def evaluate_input(self, context: object, turn: object) -> Evaluation | None:
            await both.wait()
            return self.rule(None)

    verdict = await judged(Meets(says(ALLOW), "1"), sanitizer(says(ALLOW), "2"), Meets(says(FLAG), "3"))
    assert ids(verdict.entries) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("answers", "deciding"),
    [
        ([ALLOW, FLAG, Evaluation(Action.SANITIZE), FLAG], 1),
        ([ALLOW, BLOCK, FLAG, BLOCK], 1),
        ([ALLOW, Evaluation(Action.SANITIZE)], 1),
        ([ALLOW, ALLOW], 0),
    ],
)
async def test_the_first_block_decides_else_the_first_of_the_worst(answers: list[Evaluation], deciding: int) -> None:
    guards = [
        Acting(says(answer), str(place), GuardConfig(can_sanitize=answer.action is Action.SANITIZE))
        for place, answer in enumerate(answers)
    ]
    found = (await judged(*guards)).deciding
    assert found is not None
    assert found.guard_id == str(deciding)


@pytest.mark.parametrize("text", [None, ""])
async def test_an_empty_modified_text_counts_and_a_missing_one_does_not(text: str | None) -> None:
    emptied = await judged(sanitizer(says(Evaluation(Action.SANITIZE, modified_text=text))))
    assert (emptied.value.input, emptied.changed) == ("", True)
    same = await judged(sanitizer(says(Evaluation(Action.SANITIZE))))
    assert (same.value.input, same.changed) == ("hello", False)


async def test_a_sanitizer_changes_text_alone() -> None:
    picture = {"type": "image_url", "url": "https://x.example/a.png"}
    parts = [{"type": "text", "text": "a"}, picture, {"type": "text", "text": "b"}]
    assert with_text(turn_of(parts), "c").input == [{"type": "text", "text": "c"}, picture]
    assert with_text(turn_of(parts), None).input == [picture]
    assert with_text(turn_of([picture]), "c").input == [{"type": "text", "text": "c"}, picture]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("kind", ["breaks", "hangs", "nonsense", "cancels"])
async def test_a_guard_that_fails_is_skipped_unless_it_fails_closed(
    kind: str,
    closed: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    def cancels(text: str | None) -> Evaluation | None:
        raise asyncio.CancelledError

    config = GuardConfig(fail_closed=closed, timeout_ms=20)
    broken: Acting = {
        "breaks": Acting(breaks, "1", config),
        "hangs": Hanging(says(ALLOW), "1", config),
        "nonsense": Acting(says("block"), "1", config),  # type: ignore[arg-type]
        "cancels": Acting(cancels, "1", config),
    }[kind]
    after = Acting(says(FLAG), "2")
    verdict = await judged(broken, after)
    assert ids(verdict.entries) == (["1", "2"] if closed else ["2"])
    if closed:
        assert verdict.block is not None
        assert verdict.block.code == ("GUARDRAIL_MALFORMED" if kind == "nonsense" else "GUARDRAIL_ERROR")
        assert verdict.block.evaluation.metadata == {"fail_closed": True}
    else:
        assert verdict.block is None


async def test_a_guard_that_raises_after_its_time_disturbs_nobody() -> None:
    guard = Hanging(says(ALLOW), "1", GuardConfig(timeout_ms=5))
    asking = Asking()
    assert await asking.ask(activate(guard), lambda: guard.evaluate_input(CONTEXT, turn_of("x"))) is None
    assert len(asking._late) == 1
    await asyncio.wait_for(guard.gone.wait(), 20)
    await until(lambda: asking._late == set())


async def test_a_call_that_is_given_up_gives_up_its_guards() -> None:
    guard = Hanging(says(ALLOW), "1")
    task = asyncio.create_task(judged(guard))
    await asyncio.wait_for(guard.begun.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(guard.gone.wait(), 5)


async def test_a_time_of_nought_is_no_limit() -> None:
    assert activate(Acting(says(ALLOW), config=GuardConfig(timeout_ms=0))).seconds is None


async def test_a_guard_without_a_method_is_not_asked() -> None:
    assert (await judged(OutputOnly(says(BLOCK)))).entries == ()
    assert (await judge_of(InputOnly(says(BLOCK))).final(FINAL)).entries == ()
    assert not activate(InputOnly(says(BLOCK))).has("output")


async def test_a_guard_is_asked_at_the_stages_that_it_declares() -> None:
    guard = Acting(says(BLOCK), "1")
    guard.stages = ("output",)  # type: ignore[attr-defined]
    assert (await judged(guard)).entries == ()
    assert (await judge_of(guard).final(FINAL)).block is not None
    guard.stages = ("elsewhere",)  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="stages"):
        activate(guard)


async def test_guards_need_not_be_async() -> None:
    class Plain:
        id = "plain"

        def evaluate_input(self, context: object, turn: object) -> Evaluation:
            return BLOCK

    assert (await judged(Plain())).block is not None


async def test_a_blocked_input_is_refused_with_the_guards_code_or_the_general_one() -> None:
    with pytest.raises(GuardrailBlockedError) as refusal:
        refuse_blocked(await judged(Acting(says(BLOCK), "1")))
    assert (refusal.value.code, refusal.value.message) == ("NOT_THAT", "not that")
    assert refusal.value.details == {"action": "block", "metadata": {"guardrail_id": "1"}}
    with pytest.raises(GuardrailBlockedError) as refusal:
        refuse_blocked(await judged(Acting(says(Evaluation(Action.BLOCK)))))
    assert refusal.value.code == GuardrailBlockedError().code == "GUARDRAIL_BLOCKED"


# Output -------------------------------------------------------------------------------------------------------------


async def test_pieces_are_judged_only_by_the_guards_that_want_them() -> None:
    wants, waits = streaming(says(ALLOW), "1"), Acting(says(BLOCK), "2")
    judge = judge_of(wants, waits)
    verdict = await judge.piece("Hel", "so far")
    assert (ids(verdict.entries), verdict.block) == (["1"], None)
    assert wants.asked[0].so_far == "so far"
    assert (await judge.final(FINAL)).block is not None


async def test_sanitizers_of_pieces_are_asked_in_order_each_with_the_changed_piece() -> None:
    first = streaming(replaces("a", "b"), "1", can_sanitize=True)
    second = streaming(replaces("b", "c"), "2", can_sanitize=True)
    verdict = await judge_of(first, second).piece("a", "")
    assert verdict.value.text == "c"
    assert verdict.value.fields == {"text_delta": "c"}


@pytest.mark.parametrize("rule", [says(ALLOW), breaks])
async def test_a_guard_judges_pieces_at_most_as_often_as_it_may_failures_included(rule: Any) -> None:
    guard, other = streaming(rule, max_streaming_evaluations=2), streaming(says(ALLOW))
    judge = judge_of(guard, other)
    for text in "abcd":
        assert judge.is_used_up == (text in "cd")
        await judge.piece(text, "")
    assert (len(guard.asked), len(other.asked)) == (2, 4)
    await judge.final(FINAL)
    assert len(guard.asked) == 3
    await judge_of(guard).piece("e", "")
    assert len(guard.asked) == 4


async def test_guards_are_told_the_newest_sources_and_an_empty_list_counts_for_nothing() -> None:
    guard = streaming(says(ALLOW))
    judge = judge_of(guard, sources=[{"id": "0"}])
    await judge.piece("a", "")
    judge.learn({"rag_sources": [{"id": "1"}]})
    await judge.piece("b", "")
    judge.learn({"rag_sources": []})
    judge.learn({"something": "else"})
    await judge.piece("c", "")
    await judge.final(OutputChunk("final_response", "x", fields={"rag_sources": [{"id": "2"}]}))
    assert guard.sources == [[{"id": "0"}], [{"id": "1"}], [{"id": "1"}], [{"id": "2"}]]


async def test_other_chunks_are_judged_by_the_guards_that_ask_for_them() -> None:
    asks = Acting(says(BLOCK), "1", GuardConfig(also=frozenset({"ui_command"})))
    judge = judge_of(asks, Acting(says(BLOCK), "2"))
    assert judge.asks_for("ui_command")
    assert not judge.asks_for("tool_call_request")
    assert ids((await judge.other(OutputChunk("ui_command", None))).entries) == ["1"]


async def test_a_changed_final_chunk_is_a_new_one() -> None:
    verdict = await judge_of(sanitizer(replaces("reply", "answer"))).final(FINAL)
    assert (verdict.value.text, FINAL.text, verdict.action) == ("the answer", "the reply", Action.SANITIZE)
    assert verdict.value.fields["final_response_text"] == "the answer"


# What there is, and what is required --------------------------------------------------------------------------------


def test_a_required_guard_must_be_there_and_judge_its_stages_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match="'1' is not active"):
        Guards([], required=[RequiredGuard("1")])
    with pytest.raises(ConfigurationError, match="'1' does not judge output"):
        Guards([InputOnly(says(ALLOW), "1")], required=[RequiredGuard("1", ("input", "output"))])
    declared = Acting(says(ALLOW), "1")
    declared.stages = ("input",)  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="'1' does not judge output"):
        Guards([declared], required=[RequiredGuard("1", ("output",))])


def test_a_required_guard_that_was_taken_out_is_missed_by_each_operation() -> None:
    guards = Guards([Acting(says(ALLOW), "1")], required=[RequiredGuard("1")])
    guards.disable("1")
    with pytest.raises(GuardrailMissingError) as refusal:
        guards.active()
    assert refusal.value.details == {"missing": ["1"], "missing_stage": []}
    guards.enable("1")
    assert [guard.id for guard in guards.active()] == ["1"]


async def test_a_required_guard_fails_closed_within_the_time_of_its_entry_whatever_its_own_config_says() -> None:
    hanging = Hanging(says(ALLOW), "1", GuardConfig(fail_closed=False, timeout_ms=60_000))
    guards = Guards([hanging], required=[RequiredGuard("1", ("input",), timeout_ms=5)])
    verdict = await judge_input(guards.asking, guards.active(), CONTEXT, turn_of("x"))
    assert verdict.block is not None
    assert (verdict.block.guard_id, verdict.block.code) == ("1", "GUARDRAIL_ERROR")


async def test_a_required_guard_that_answers_nonsense_blocks_and_one_that_says_nothing_allows() -> None:
    nonsense = Acting(says(Evaluation("perhaps")), "1")  # type: ignore[arg-type]
    guards = Guards([nonsense], required=[RequiredGuard("1")])
    verdict = await judge_input(guards.asking, guards.active(), CONTEXT, turn_of("x"))
    assert verdict.block is not None
    assert verdict.block.code == "GUARDRAIL_MALFORMED"
    silent = Guards([Acting(says(None), "1")], required=[RequiredGuard("1")])
    assert (await judge_input(silent.asking, silent.active(), CONTEXT, turn_of("x"))).block is None


def test_a_persona_adds_guards_behind_those_that_judge_everything() -> None:
    one, two = Acting(says(ALLOW), "1"), Acting(says(ALLOW))
    guards = Guards([one], named={"two": two, "1": one})
    assert [guard.id for guard in guards.active()] == ["1"]
    assert [guard.id for guard in guards.active(["two", "1"])] == ["1", "two"]
    with pytest.raises(ConfigurationError, match="three"):
        guards.check_persona(Persona("x", "X", "-", guardrails=("two", "three")))
    with pytest.raises(GuardrailMissingError, match="three"):
        guards.active(["three"])
    guards.disable("two")
    with pytest.raises(GuardrailMissingError):
        guards.active(["two"])


def test_ids_are_unique() -> None:
    with pytest.raises(ConfigurationError, match="same id"):
        Guards([Acting(says(ALLOW), "1"), Acting(says(ALLOW), "1")])


def test_a_required_output_guard_makes_the_reply_wait_for_it() -> None:
    guard = Acting(says(ALLOW), "1")
    assert Guards([guard], required=[RequiredGuard("1", ("output",))]).mode == "hold"
    assert Guards([guard], required=[RequiredGuard("1", ("input",))]).mode == "stream"
    assert Guards([guard], mode="sentence").mode == "sentence"
    assert (Guards(mode="until_input_ok").mode, Guards(mode="until_input_ok").judges_input_beside) == ("stream", True)


async def test_a_verdict_callback_that_raises_changes_nothing() -> None:
    def listener(report: Report) -> None:
        raise RuntimeError(report.action)

    await Guards(on_verdict=listener).report(Report("s", "block", None, None, None))


async def test_a_block_holds_when_two_guards_block_at_once_by_order_not_by_speed() -> None:
    slow = asyncio.Event()

    class Slow(Acting):
        async def evaluate_input(self, context: object, turn: object) -> Evaluation | None:
            await slow.wait()
            return self.rule("bad")

    class Quick(Acting):
        async def evaluate_input(self, context: object, turn: object) -> Evaluation | None:
            slow.set()
            return self.rule("bad")

    verdict = await judged(Slow(blocks("bad"), "1"), Quick(blocks("bad"), "2"))
    assert verdict.block is not None
    assert verdict.block.guard_id == "1"
