"""The ring of one running operation: what it keeps, what it gives, whom it wakes."""

import asyncio
from uuid import UUID

import pytest

from app.streaming.ring import FEW_READERS, KEPT_BYTES, PIECE_BYTES, UNWRITTEN_BYTES, LostFenceError, Ring, Rings

KEY = UUID(int=1)


def ring_of(*frames: bytes) -> Ring:
    ring = Ring(KEY, "st", 7)
    for frame in frames:
        ring.append(frame)
    return ring


def test_a_reader_gets_what_lies_behind_its_cursor() -> None:
    ring = ring_of(b"one", b"two", b"three")
    assert ring.after(0) == [b"one", b"two", b"three"]
    assert ring.after(2) == [b"three"]
    assert ring.after(3) == []
    assert ring.last_n == 3


def test_a_reader_far_behind_takes_the_ring_in_pieces() -> None:
    ring = ring_of(*[b"x" * 1000] * 200)
    taken = 0
    while piece := ring.after(taken):
        assert sum(map(len, piece)) < PIECE_BYTES + 1000
        taken += len(piece)
    assert taken == 200


def test_a_batch_in_flight_never_changes_and_new_frames_make_a_new_one() -> None:
    ring = ring_of(b"one")
    first = ring.next_batch()
    ring.append(b"two")
    assert ring.next_batch() is first
    assert first is not None
    assert (first.first_n, first.last_n, first.frames) == (1, 1, b"one")
    ring.mark_durable(1)
    second = ring.next_batch()
    assert second is not None
    assert (second.first_n, second.last_n, second.frames) == (2, 2, b"two")


def test_the_last_transaction_takes_the_batch_of_unknown_outcome_as_it_was_and_the_rest_beside_it() -> None:
    ring = ring_of(b"one")
    flying = ring.next_batch()
    ring.append(b"two")
    ring.append(b"three")
    batches = ring.all_batches()
    assert batches[0] is flying
    assert [(batch.first_n, batch.last_n) for batch in batches] == [(1, 1), (2, 3)]


def test_nothing_that_is_not_durable_is_dropped_and_old_durable_frames_go() -> None:
    frame = b"x" * (KEPT_BYTES // 4)
    ring = ring_of(*[frame] * 10)
    assert ring.after(0) is not None
    ring.mark_durable(3)
    assert ring.after(2) is None
    assert ring.after(3) is not None
    ring.mark_durable(8)
    assert ring.after(0) is None
    assert ring.after(8) is not None
    assert ring.first_n <= 9


async def test_at_its_bound_the_ring_has_no_room_until_something_is_durable() -> None:
    ring = ring_of(*[b"x" * (UNWRITTEN_BYTES // 4)] * 4)
    waiting = asyncio.create_task(ring.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    ring.mark_durable(2)
    async with asyncio.timeout(30):
        await waiting


@pytest.mark.parametrize("how", ["lose", "close"])
async def test_who_waits_for_room_is_let_go_when_the_ring_is_over(how: str) -> None:
    ring = ring_of(*[b"x" * (UNWRITTEN_BYTES // 4)] * 4)
    waiting = asyncio.create_task(ring.room())
    await asyncio.sleep(0)
    getattr(ring, how)()
    async with asyncio.timeout(30):
        await waiting


def test_a_lost_ring_takes_nothing_more() -> None:
    ring = ring_of(b"one")
    ring.lose()
    with pytest.raises(LostFenceError):
        ring.append(b"two")
    assert ring.last_n == 1


async def test_a_few_readers_are_woken_by_each_frame() -> None:
    ring = Ring(KEY, "st", 7)
    woken = asyncio.create_task(ring.grown(0))
    await asyncio.sleep(0)
    ring.append(b"one")
    async with asyncio.timeout(30):
        await woken


async def test_a_frame_wakes_no_reader_that_was_handed_it() -> None:
    ring, handed = Ring(KEY, "st", 7), list[bytes]()

    def take(frame: bytes) -> bool:
        handed.append(frame)
        return True

    takes, waits = asyncio.create_task(ring.grown(0, take)), asyncio.create_task(ring.grown(0))
    await asyncio.sleep(0)
    ring.append(b"one")
    async with asyncio.timeout(30):
        await waits
    assert not takes.done()
    ring.append(b"two")
    assert handed == [b"one", b"two"]
    ring.close()
    async with asyncio.timeout(30):
        await takes


async def test_a_thousand_idle_readers_are_woken_once_for_many_frames() -> None:
    ring = Ring(KEY, "st", 7)
    wakes = 0
    taken = []

    async def read() -> None:
        nonlocal wakes
        cursor = 0
        while cursor < 20:
            await ring.grown(cursor)
            wakes += 1
            cursor = ring.last_n
        taken.append(cursor)

    readers = [asyncio.create_task(read()) for _ in range(1000)]
    await asyncio.sleep(0)
    for _ in range(20):
        ring.append(b"frame")
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await asyncio.gather(*readers)
    assert taken == [20] * 1000
    assert wakes == 1000


async def test_the_end_wakes_a_thousand_readers_at_once() -> None:
    ring = Ring(KEY, "st", 7)
    readers = [asyncio.create_task(ring.grown(0)) for _ in range(1000)]
    await asyncio.sleep(0)
    ring.append_durable([b"end"])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert all(reader.done() for reader in readers)


def test_a_ring_is_found_while_it_is_open_and_only_its_own_drop_forgets_it() -> None:
    rings, old, new = Rings(), Ring(KEY, "st", 7), Ring(KEY, "st", 8)
    rings.open(old)
    rings.open(new)
    rings.drop(old)
    assert rings.find("st") is new
    rings.drop(new)
    assert rings.find("st") is None


def test_an_operations_last_frames_stay_however_large_they_are() -> None:
    ring = ring_of(b"text")
    ring.append_durable([b"x" * KEPT_BYTES * 3, b"end"])
    assert ring.after(0) == [b"text", b"x" * KEPT_BYTES * 3, b"end"]


async def test_what_many_readers_are_to_be_woken_for_stays_until_they_are() -> None:
    ring = Ring(KEY, "st", 7)
    readers = [asyncio.create_task(ring.grown(0)) for _ in range(FEW_READERS + 1)]
    await asyncio.sleep(0)
    for _ in range(3):
        ring.append(b"x" * KEPT_BYTES)
    ring.mark_durable(3)
    assert ring.first_n == 1
    async with asyncio.timeout(30):
        await asyncio.gather(*readers)
    ring.append(b"next")
    ring.mark_durable(4)
    assert ring.after(3) == [b"next"]
    assert ring.after(2) is None
