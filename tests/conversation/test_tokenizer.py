"""A model's own tokenizer: read from a file, counted exactly, and told as exact."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from app.conversation.tokenizer import FileTokenizer
from app.conversation.tokens import Estimate, TokenCounters
from app.domain.errors import ConfigurationError
from app.providers.scripted import ScriptedProvider
from tests.conversation.talking import completed, routing
from tests.stage import running_stage

WORDS = {"word": 0, "another": 1, "?": 2}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tokenizer that makes one token of each word."""
    made = Tokenizer(models.WordLevel(WORDS, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def test_a_tokenizer_of_a_file_counts_exactly(file: Path) -> None:
    counter = FileTokenizer(file)
    assert counter.exact
    assert [counter.text(text) for text in ("", "word", "word another word", "strange word")] == [0, 1, 3, 2]


def test_a_very_long_text_is_counted_in_pieces(file: Path) -> None:
    assert FileTokenizer(file).text("word " * 100_000) == 100_000


def test_a_model_with_a_tokenizer_is_counted_by_it_and_another_is_estimated(file: Path) -> None:
    counters = TokenCounters({"house:small": FileTokenizer(file)})
    assert counters.of("house:small").exact
    assert isinstance(counters.of("house:large"), Estimate)


@pytest.mark.parametrize("content", [None, "{}", "no JSON"], ids=["missing", "empty", "broken"])
def test_a_file_that_is_no_tokenizer_is_refused_with_its_name(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "other.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"other\.json can't be read"):
        FileTokenizer(path)


async def test_a_turn_tells_that_its_tokens_were_counted(shared_database: str, tmp_path: Path, file: Path) -> None:
    providers = tmp_path / "providers.yaml"
    known = f"{{base_url: http://127.0.0.1:9/v1, models: {{small: {{tokenizer: {file}}}}}}}"
    providers.write_text(f"providers: {{house: {known}}}", encoding="utf-8")
    house = ScriptedProvider(["Ok."], name="house")
    async with running_stage(shared_database, house, default_model="house:small", providers_file=providers) as stage:
        chunks = await stage.play("word another word")
        assert completed(chunks)
        sizes = routing(chunks)["history"]["tokens"]
        assert (sizes["estimated"], sizes["messages"]) == (False, 7)
