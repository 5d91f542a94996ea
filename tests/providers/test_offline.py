"""The embedder that needs no server: what its vectors are like, and what it says when it can't be used."""

import asyncio
import math
import subprocess
import sys

import pytest

from app.domain.errors import ProviderError, ProviderUnavailableError
from app.providers import offline
from app.providers.doctor import examine_embedding
from app.providers.offline import OfflineEmbedder, offline_embedder
from app.providers.registry import ProviderRegistry

QUESTION = "How do I give back a broken kettle?"


@pytest.fixture(scope="module")
def embedder() -> OfflineEmbedder:
    return offline_embedder()


def alike(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_texts_about_one_thing_are_nearer_than_others(embedder: OfflineEmbedder) -> None:
    texts = [QUESTION, "Defective appliances are refunded within thirty days.", "The weather in Berlin is sunny."]

    asked, near, far = (await embedder.embed("wordllama", texts)).vectors

    assert alike(asked, near) > alike(asked, far) + 0.1


async def test_vectors_come_in_order_with_length_one_and_their_tokens_are_counted(embedder: OfflineEmbedder) -> None:
    embedded = await embedder.embed("wordllama", ["kettle", "weather", "kettle"])

    assert [len(vector) for vector in embedded.vectors] == [256] * 3
    assert embedded.vectors[0] == embedded.vectors[2] != embedded.vectors[1]
    assert all(math.isclose(math.hypot(*vector), 1.0) for vector in embedded.vectors)
    assert embedded.usage.prompt_tokens >= 3


async def test_fewer_dimensions_are_a_shorter_vector_of_length_one(embedder: OfflineEmbedder) -> None:
    (vector,) = (await embedder.embed("wordllama", [QUESTION], dimensions=64)).vectors

    assert (len(vector), round(math.hypot(*vector), 6)) == (64, 1.0)


@pytest.mark.parametrize("text", ["", "\x00", "\u4e2d\u6587 \U0001f30d", "x" * 300_000, "half \ud83d"])
async def test_any_text_has_a_vector_of_numbers(embedder: OfflineEmbedder, text: str) -> None:
    (vector,) = (await embedder.embed("wordllama", [text])).vectors

    assert len(vector) == 256
    assert all(map(math.isfinite, vector))


async def test_no_text_is_no_vector(embedder: OfflineEmbedder) -> None:
    assert (await embedder.embed("wordllama", [])).vectors == ()


async def test_another_model_is_refused_with_the_name_of_the_one_there_is(embedder: OfflineEmbedder) -> None:
    with pytest.raises(ProviderError, match="offline:wordllama, and no 'other'"):
        await embedder.embed("other", [QUESTION])


async def test_the_event_loop_goes_on_while_texts_are_embedded() -> None:
    fresh = offline_embedder()
    embedding = asyncio.create_task(fresh.embed("wordllama", [QUESTION] * 200))
    steps = 0
    while not embedding.done():
        await asyncio.sleep(0)
        steps += 1

    assert len((await embedding).vectors) == 200
    assert steps > 1


async def test_the_registry_gives_it_and_the_doctor_examines_it() -> None:
    registry = ProviderRegistry([])

    finding = await examine_embedding(registry, "offline:wordllama")

    assert (finding.well, finding.sentence) == (True, "It embeds, 256 numbers a text.")
    assert registry.embeddings("offline:wordllama")[0] is registry.embeddings("offline:wordllama")[0]


async def test_a_missing_package_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "find_spec", lambda _: None)

    with pytest.raises(ProviderUnavailableError, match="pip install numpy tokenizers wordllama"):
        ProviderRegistry([]).embeddings("offline:wordllama")


def test_nothing_of_it_is_imported_before_it_is_used() -> None:
    code = (
        "import sys; from app.providers.registry import ProviderRegistry; "
        "ProviderRegistry([]).embeddings('offline:wordllama'); "
        "sys.exit(bool({'numpy', 'tokenizers', 'wordllama'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
