"""What is told of a conversation, with and without a summary, under every limit, head, tail, profile and budget."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from app.conversation.budget import fitted
from app.conversation.compaction import Bounds, choose
from app.conversation.covered import Covered
from app.conversation.history import Summary, arranged
from app.conversation.rounds import blocks
from app.conversation.tokens import Estimate, messages_tokens, surely_fit
from app.conversation.valid import OPENING, valid
from app.domain.messages import Entry, Message
from app.domain.policy import HistoryPolicy
from tests.conversation.histories import INPUT, TEXTS, broken_rules, entries_of, messy, round_of, stored
from tests.requirements import requirement

ALL = HistoryPolicy(limit=0)
NOT_TAKEN = {"system", "summary"}


@dataclass(frozen=True, slots=True)
class Profile:
    """The sizes of a compaction profile."""

    head: int
    tail: int
    least: int
    most: int


PROFILES = st.builds(Profile, st.integers(0, 8), st.integers(0, 8), st.integers(1, 6), st.integers(1, 12))


@dataclass
class Talk:
    """A conversation that grows, and its summary state, as phase 9 keeps it."""

    entries: list[Entry]
    covered: Covered = field(default_factory=Covered)
    head: int | None = None

    def grow(self, more: Sequence[Message]) -> None:
        self.entries += [Entry(len(self.entries) + place, message) for place, message in enumerate(more, start=1)]

    def compact(self, profile: Profile) -> None:
        """Make a pass under a profile, as `Summarizer` does."""
        free = [entry for entry in self.entries if entry.position not in self.covered]
        if self.covered:
            free = [entry for entry in free if entry.position > self.covered.first]
        bounds = Bounds(
            head=0 if self.covered else profile.head,
            tail_from=self.tail_from(profile.tail),
            least=profile.least,
            most=profile.most,
        )
        chosen = choose(free, bounds)
        if chosen is None:
            return
        self.head = self.head if self.covered else profile.head
        self.covered = self.covered.adding([entry.position for entry in chosen.taken], chosen.left)

    def tail_from(self, tail: int) -> int:
        messages = [entry.message for entry in self.entries]
        first = len(messages) - max(1, tail)
        starts = [block.start for block in blocks(messages) if block.stop > first]
        return self.entries[starts[0]].position

    def summary(self, head_now: int = 0, *, at_limit: bool = False) -> Summary | None:
        if not self.covered:
            return None
        return Summary("So far.", None, self.covered, self.head, head_now, at_limit=at_limit)

    def told(self, policy: HistoryPolicy = ALL, head_now: int = 0) -> list[Message]:
        return arranged(self.entries, self.summary(head_now), policy)

    @property
    def taken(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.position in self.covered]


def named(messages: Sequence[Message]) -> list[Message]:
    """Give the messages ids of their own, so that each can be told from every other."""
    numbers = count()
    return [replace(message, metadata={"n": next(numbers)}) for message in messages]


def numbers_of(messages: Sequence[Message]) -> list[int]:
    return [message.metadata["n"] for message in messages if message.metadata and "n" in message.metadata]


@st.composite
def talks(draw: st.DrawFn) -> tuple[Talk, list[Profile]]:
    """Give a conversation that some passes under different profiles have been made on."""
    parts = [draw(stored()) for _ in range(draw(st.integers(1, 4)))]
    messages = _own_ids(parts)
    talk, used = Talk([]), []
    for part in messages:
        talk.grow(part)
        for profile in draw(st.lists(PROFILES, max_size=3)):
            talk.compact(profile)
            used.append(profile)
    return talk, used


def _own_ids(parts: list[list[Message]]) -> list[list[Message]]:
    """Make the call ids of the parts differ, and number the messages through."""
    made = [
        [
            replace(
                message,
                tool_calls=tuple(replace(call, id=f"p{place}_{call.id}") for call in message.tool_calls),
                tool_call_id=f"p{place}_{message.tool_call_id}" if message.tool_call_id else None,
            )
            for message in part
        ]
        for place, part in enumerate(parts)
    ]
    flat = iter(named([message for part in made for message in part]))
    return [[next(flat) for _ in part] for part in made]


@requirement("R61", "R65", "R67", "R68", "R69", "R70", "R71")
@settings(deadline=None, max_examples=120)
@given(talks(), st.integers(0, 10))
def test_each_message_is_in_the_summary_or_told_and_never_both(made: tuple[Talk, list[Profile]], head_now: int) -> None:
    talk, _ = made
    told = numbers_of(talk.told(head_now=head_now))
    taken = numbers_of([entry.message for entry in talk.taken])
    assert sorted([*told, *taken]) == numbers_of([entry.message for entry in talk.entries])
    assert told == sorted(told)


@requirement("R61", "R62", "R63", "R64", "R338", "R339")
@settings(deadline=None, max_examples=120)
@given(talks())
def test_a_round_is_taken_whole_or_told_whole_and_never_taken_while_it_waits(made: tuple[Talk, list[Profile]]) -> None:
    talk, _ = made
    messages = [entry.message for entry in talk.entries]
    for block in blocks(messages):
        inside = {talk.entries[place].position in talk.covered for place in range(block.start, block.stop)}
        assert len(inside) == 1
        if block.is_round and not block.complete:
            assert inside == {False}
    assert {entry.message.role for entry in talk.taken} & NOT_TAKEN == set()
    assert talk.entries[-1].position not in talk.covered


@requirement("R66")
@settings(deadline=None, max_examples=80)
@given(talks())
def test_the_state_keeps_the_head_that_it_was_made_with_and_takes_none_of_it(made: tuple[Talk, list[Profile]]) -> None:
    talk, used = made
    if talk.covered:
        assert talk.head in {profile.head for profile in used}
        assert talk.covered.first > (talk.head or 0)


@settings(deadline=None, max_examples=120)
@given(talks(), st.integers(0, 30), st.integers(0, 6), st.integers(60, 3000))
def test_what_is_sent_is_valid_and_fits_whatever_the_limit_head_and_budget(
    made: tuple[Talk, list[Profile]], limit: int, head: int, budget: int
) -> None:
    talk, _ = made
    counter = Estimate()
    policy = HistoryPolicy(limit=limit, head=head)
    for summary in (None, talk.summary(), talk.summary(at_limit=True)):
        told = arranged(talk.entries, summary, policy)
        sent = fitted(told, budget=budget, head=head, counter=counter).messages
        assert broken_rules(sent) == []
        assert messages_tokens(sent, counter) <= budget
        assert fitted(sent, budget=budget, head=head, counter=counter).messages == sent
        assert len(set(numbers_of(sent))) == len(numbers_of(sent))
        assert numbers_of(sent)[-1] == numbers_of([talk.entries[-1].message])[0]
        assert _torn(talk, numbers_of(sent)) == []


def _torn(talk: Talk, sent: list[int]) -> list[int]:
    """Give the blocks that were sent in part."""
    messages = [entry.message for entry in talk.entries]
    torn = []
    for block in blocks(messages):
        inside = numbers_of(messages[block.start : block.stop])
        if len(set(inside) & set(sent)) not in {0, len(inside)}:
            torn.append(block.start)
    return torn


@settings(deadline=None, max_examples=80)
@given(talks(), st.integers(100, 3000))
def test_within_the_budget_nothing_that_may_be_sent_is_lost(made: tuple[Talk, list[Profile]], spare: int) -> None:
    talk, _ = made
    told = talk.told()
    counter = Estimate()
    budget = messages_tokens(valid(told).messages, counter) + spare
    sent = fitted(told, budget=budget, head=2, counter=counter).messages
    assert sorted(numbers_of(sent)) == sorted(numbers_of(told))


@settings(deadline=None)
@given(messy(), st.text(st.characters(codec=None)) | st.sampled_from(["7" * 40, "\U0001f600" * 40]))
def test_what_does_not_fit_never_surely_fits(messages: list[Message], text: str) -> None:
    counter = Estimate()
    for told in ([*messages, Message("user", text)], [Message("user", text)]):
        size = messages_tokens(told, counter)
        assert not surely_fit(told, counter, size - 1)
    assert surely_fit([Message("user", text)], counter, 10 + 2 * len(text))


@requirement("R72")
@settings(deadline=None, max_examples=200)
@given(stored(summaries=False), st.integers(1, 20), st.integers(0, 6))
def test_a_state_without_a_recorded_head_keeps_its_gap(messages: list[Message], upto: int, head_now: int) -> None:
    entries = entries_of(named(messages))
    upto = min(upto, len(entries))
    state = Summary("So far.", None, Covered(((upto, upto),)), None, head_now, at_limit=False)
    told = numbers_of(arranged(entries, state, ALL))
    behind = numbers_of([entry.message for entry in entries if entry.position > upto])
    front = told[: len(told) - len(behind)]
    assert told == front + behind
    assert front == list(range(len(front)))
    assert len(front) >= min(head_now, upto)


def test_another_profile_goes_on_from_the_summary_that_the_first_one_made() -> None:
    talk = Talk(entries_of(named([Message("user", f"m{n}") for n in range(30)])))
    talk.compact(Profile(head=2, tail=12, least=12, most=48))
    assert talk.covered.spans == ((3, 18),)
    talk.grow(named([Message("user", f"n{n}") for n in range(12)]))
    talk.compact(Profile(head=9, tail=4, least=4, most=48))
    assert talk.covered.spans == ((3, 38),)
    assert talk.head == 2


def test_a_second_pass_takes_no_new_head() -> None:
    talk = Talk(entries_of([Message("user", f"m{n}") for n in range(40)]))
    for _ in range(2):
        talk.compact(Profile(head=2, tail=4, least=4, most=10))
    assert talk.covered.spans == ((3, 22),)


def test_a_waiting_round_in_the_middle_is_told_behind_the_summary_and_taken_once_it_is_answered() -> None:
    waiting = round_of("call", 2, answered=1)
    early = [Message("user", f"m{n}") for n in range(4)]
    late = [Message("user", f"n{n}") for n in range(6)]
    talk = Talk(entries_of([*early, *waiting, *late]))
    profile = Profile(head=1, tail=1, least=2, most=48)
    talk.compact(profile)
    assert talk.covered.spans == ((2, 4), (7, 11))
    told = talk.told()
    assert [message.content for message in told if message.role == "user"] == ["m0", "n5"]
    assert told[2:4] == waiting


def test_messages_that_are_not_sent_between_two_taken_ones_do_not_split_what_is_covered() -> None:
    assert Covered(((3, 5),)).adding([9, 10], left=[2, 12]).spans == ((3, 10),)
    assert Covered(((3, 5),)).adding([9, 10], left=[2, 7]).spans == ((3, 5), (9, 10))
    assert Covered(((3, 5), (9, 10))).adding([7], left=[]).spans == ((3, 10),)


@settings(deadline=None, max_examples=100)
@given(st.lists(TEXTS, min_size=1, max_size=30), st.integers(40, 400))
def test_a_cut_to_the_budget_leaves_no_hole_among_the_newest(texts: list[str], budget: int) -> None:
    messages = named([*(Message("user", text) for text in texts), INPUT])
    sent = numbers_of(fitted(messages, budget=budget, head=0, counter=Estimate()).messages)
    assert sent == list(range(len(messages) - len(sent), len(messages)))


def test_summary_and_head_are_told_before_the_newest_where_tokens_are_short() -> None:
    summary = Message("summary", "So far.", metadata={"source": "summary"})
    messages = [Message("user", "first"), summary, *(Message("user", "x" * 400) for _ in range(5)), INPUT]
    sent = fitted(messages, budget=160, head=1, counter=Estimate()).messages
    assert [str(message.content)[:8] for message in sent] == ["first", "So far.", "x" * 8, "And now?"]


def test_a_cut_that_begins_with_a_round_has_an_opening_within_the_budget() -> None:
    messages = [Message("user", "x" * 900), *round_of("call", 2), INPUT]
    sent = fitted(messages, budget=120, head=1, counter=Estimate()).messages
    assert sent[0] == OPENING
    assert messages_tokens(sent, Estimate()) <= 120
