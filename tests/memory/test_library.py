"""What the library finds, for whom, and what is left of a document that was not taken in."""

from collections.abc import AsyncIterator

import pytest

from app.domain.documents import NewDocument
from app.domain.errors import AlreadyExistsError, NotFoundError, ProviderError
from app.domain.ids import row_key
from app.domain.turn import Caller
from app.providers.errors import failure
from app.store import passages
from tests.databases import execute, rows
from tests.memory.shelf import Shelf, Topics, open_shelf
from tests.stage import ADA, Stage

BOB = Caller("bob")
ELSEWHERE = Caller("ada", "acme")


@pytest.fixture
async def shelf(shared_database: str) -> AsyncIterator[Shelf]:
    async with open_shelf(shared_database) as opened:
        yield opened


async def test_a_question_finds_the_passage_that_answers_it_by_its_words(shelf: Shelf) -> None:
    text = "# Returns\n\nShoes are returned within 30 days.\n\n# Hours\n\nWe open at nine."
    about = {"content_type": "text/markdown", "title": "Shop", "source": "https://shop.example", "language": "en"}
    await shelf.library.ingest(ADA, NewDocument(text, document_id="shop", **about))  # type: ignore[arg-type]
    found = await shelf.found("When may I return a shoe?")
    assert [(chunk.chunk_id, chunk.heading) for chunk in found] == [("shop#1", "Returns")]
    assert found[0].to_json() == {
        "id": "shop#1",
        "original_document_id": "shop",
        "data_source_id": "default",
        "content": "Shoes are returned within 30 days.",
        "heading": "Returns",
        "title": "Shop",
        "source": "https://shop.example",
        "metadata": {},
        "relevance_score": 1.0,
    }
    assert await shelf.found("quantum chromodynamics") == []


async def test_a_rare_word_weighs_more_than_common_ones(shelf: Shelf) -> None:
    for number in range(8):
        await shelf.put(f"d{number}", f"The order of customer number {number} was sent to the customer today.")
    await shelf.put("rare", "Zanzibar has an order of its own.")
    assert (await shelf.names("the order of the customer in Zanzibar today"))[0] == "rare"


@pytest.mark.parametrize(
    ("language", "text", "query"),
    [
        ("de", "Die Lieferungen dauern drei Tage.", "Wie lange dauert eine Lieferung?"),
        ("fr-CA", "Les livraisons sont gratuites.", "La livraison est-elle gratuite ?"),
        ("ja", "返品 は 三十日 以内 です", "返品"),
        (None, "Die Lieferungen dauern drei Tage.", "Lieferungen"),
    ],
)
async def test_words_are_found_in_the_forms_of_their_language(
    shelf: Shelf, language: str | None, text: str, query: str
) -> None:
    await shelf.put("d", text, language=language)
    assert await shelf.names(query) == ["d"]


@pytest.mark.parametrize("query", ["it's", "a' | b & !c", "\\", "'; DROP TABLE documents; --", "%", "  ", "((", "a:*b"])
async def test_no_query_is_an_error(shelf: Shelf, query: str) -> None:
    await shelf.put("d", f"A text with {query} in it and a backslash \\ it's.")
    await shelf.found(query)
    assert await shelf.names("backslash") == ["d"]


async def test_meaning_is_found_where_no_word_is_shared_and_both_ways_are_fused(shared_database: str) -> None:
    topics = Topics()
    async with open_shelf(shared_database, topics) as shelf:
        await shelf.put("dogs", "My hound sleeps.")
        await shelf.put("cars", "The vehicle is red.")
        await shelf.put("both", "A puppy likes the automobile that is red.")
        by_meaning = await shelf.found("a dog", strategy="similarity", top_k=2)
        assert [chunk.document_id for chunk in by_meaning] == ["dogs", "both"]
        assert (await shelf.names("Is the car red?"))[0] in {"cars", "both"}
        assert await shelf.names("a dog", strategy="words") == ["both"]
        assert topics.asked[0] == ["My hound sleeps."]
        stored = await rows(shared_database, "SELECT DISTINCT embedding_model FROM document_chunks")
        assert [row[0] for row in stored] == ["test:topics/3"]


async def test_an_embedding_model_that_fails_stops_no_search_but_takes_no_document_in(shared_database: str) -> None:
    topics = Topics()
    async with open_shelf(shared_database, topics) as shelf:
        await shelf.put("d", "My hound sleeps.")
        topics.fails = failure("connect", "test", "away")
        assert await shelf.names("hound") == ["d"]
        with pytest.raises(ProviderError):
            await shelf.put("e", "Another hound.")
    assert len(await rows(shared_database, "SELECT 1 FROM documents")) == 1


async def test_without_documents_nothing_is_embedded(shared_database: str) -> None:
    topics = Topics()
    async with open_shelf(shared_database, topics) as shelf:
        await shelf.put("d", "My hound.", ELSEWHERE)
        assert await shelf.found("hound") == []
        assert topics.asked == [["My hound."]]


async def test_a_database_without_pgvector_finds_by_words(database: str) -> None:
    await execute(database, "DROP EXTENSION vector")
    async with open_shelf(database, Topics()) as shelf:
        await shelf.put("dogs", "My hound sleeps.")
        assert await shelf.names("hound") == ["dogs"]
        assert await shelf.names("dog") == []


async def test_nobody_finds_what_is_anothers(shelf: Shelf, stage: Stage) -> None:
    await stage.runtime.create_conversation(
        ADA, conversation_id="c", session_id=None, persona_id=None, title=None, metadata={}, messages=()
    )
    await shelf.put("org", "A hound.")
    await shelf.put("mine", "A hound.", scope="user")
    await shelf.put("talk", "A hound.", scope="conversation", conversation_id="c")
    here = row_key("", "c")
    assert set(await shelf.names("hound")) == {"org", "mine"}
    assert set(await shelf.names("hound", conversation=here)) == {"org", "mine", "talk"}
    assert set(await shelf.names("hound", conversation=row_key("", "another"))) == {"org", "mine"}
    assert await shelf.names("hound", BOB, conversation=here) == ["org"]
    assert await shelf.names("hound", ELSEWHERE, conversation=here) == []
    with pytest.raises(NotFoundError):
        await shelf.put("intruder", "A hound.", BOB, scope="conversation", conversation_id="c")


async def test_a_document_of_the_same_name_elsewhere_is_another_one(shelf: Shelf, stage: Stage) -> None:
    callers = {caller: f"A hound of {number}." for number, caller in enumerate([ADA, ELSEWHERE])}
    for caller, content in callers.items():
        await shelf.put("d", content, caller)
        await shelf.put("own", content, caller, scope="user")
    await shelf.put("bobs", "A hound of Bob's.", BOB, scope="user")
    for caller, content in callers.items():
        assert {chunk.content for chunk in await shelf.found("hound", caller)} == {content}
        assert len(await shelf.found("hound", caller)) == 2
        chunks = await stage.runtime.documents.chunks(caller, "d", cursor=None, limit=9)
        assert [chunk.content for chunk in chunks.items] == [content]
    assert await stage.runtime.users.erase(ADA) == 0
    assert await shelf.names("hound") == ["d"]
    assert set(await shelf.names("hound", ELSEWHERE)) == {"d", "own"}
    assert set(await shelf.names("hound", BOB)) == {"d", "bobs"}


async def test_passages_of_one_name_elsewhere_have_vectors_of_their_own(shared_database: str) -> None:
    topics, callers = Topics(), {ADA: "A hound.", ELSEWHERE: "A car in the rain."}
    async with open_shelf(shared_database, topics) as shelf:
        for caller, content in callers.items():
            await shelf.put("d", content, caller)
        for caller, content in callers.items():
            found = await shelf.found(content, caller)
            async with shelf.database.transaction() as connection:
                vectors = await passages.vectors(connection, caller.organization_id, found)
            (own,) = await topics.embed([content])
            assert {name: list(vector) for name, vector in vectors.items()} == {"d#1": pytest.approx(own)}


async def test_collections_are_looked_in_as_named_and_an_empty_list_is_none(shelf: Shelf) -> None:
    await shelf.put("a", "A hound.", collection="one")
    await shelf.put("b", "A hound.", collection="two")
    assert await shelf.names("hound", collections=["two"]) == ["b"]
    assert await shelf.names("hound", collections=[]) == []
    assert len(await shelf.names("hound", top_k=1)) == 1


async def test_an_id_is_taken_unless_its_document_is_replaced(shelf: Shelf) -> None:
    await shelf.put("d", "A hound.")
    with pytest.raises(AlreadyExistsError, match="replace: true"):
        await shelf.put("d", "A puppy.")
    await shelf.put("d", "A puppy.", replace=True)
    assert (await shelf.names("hound"), await shelf.names("puppy")) == ([], ["d"])
    await shelf.put("private", "A secret.", scope="user")
    with pytest.raises(AlreadyExistsError):
        await shelf.put("private", "Mine now.", BOB, replace=True)
    assert await shelf.names("secret") == ["private"]


async def test_an_erased_conversation_takes_its_documents_along(shelf: Shelf, stage: Stage) -> None:
    await stage.runtime.create_conversation(
        ADA, conversation_id="c", session_id=None, persona_id=None, title=None, metadata={}, messages=()
    )
    await shelf.put("talk", "A hound.", scope="conversation", conversation_id="c")
    await shelf.put("org", "A hound.")
    await stage.runtime.delete_conversation(ADA, "c")
    left = await rows(stage.database, "SELECT document_id FROM documents UNION SELECT document_id FROM document_chunks")
    assert [row[0] for row in left] == ["org"]


async def test_a_document_of_the_greatest_length_is_taken_in_and_its_last_words_are_found(shared_database: str) -> None:
    topics = Topics()
    async with open_shelf(shared_database, topics) as shelf:
        await shelf.put("long", "A sentence of no weight at all. " * 3000 + "The last word is zanzibar.")
        (last,) = await shelf.found("zanzibar", strategy="words")
        stored = await rows(shared_database, "SELECT count(*), count(embedding) FROM document_chunks")
        assert (last.number, last.number) == tuple(stored[0])
        assert last.number > 150
