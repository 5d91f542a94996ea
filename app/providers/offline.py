"""Embeddings without a server: static word vectors that an optional package brings; nothing is ever fetched.

A text's vector is the mean of its tokens' vectors, so it knows which words are alike, and nothing of their order: good
enough to find passages by meaning, below what a model behind a server does, and for English before other languages.
"""

import asyncio
import json
import math
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.domain.errors import ProviderUnavailableError
from app.domain.text import clean_text
from app.domain.usage import Usage
from app.providers.embeddings import Embeddings
from app.providers.errors import failure

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer

NAME: Final = "offline"
MODEL: Final = "wordllama"
_FILES: Final = ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json")
_LONGEST: Final = 100_000
"""Characters of a text that are read; what follows would hardly move the mean."""


class OfflineEmbedder:
    """The model `offline:wordllama`: 256 numbers a text, or fewer where `dimensions` asks for it. Costs no money.

    Its files are read at first use, in a thread, and take about 40 MB of memory. A text without any token has the
    vector of zeros; every other vector has the length one.
    """

    name = NAME

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._read: tuple[np.ndarray[Any, Any], Tokenizer] | None = None

    async def embed(self, model: str, texts: Sequence[str], *, dimensions: int | None = None) -> Embeddings:
        """Give the vectors of the texts; usage counts their tokens. Raises `ProviderError` for another model."""
        if model != MODEL:
            message = f"The provider {NAME} has one model, {NAME}:{MODEL}, and no {model!r}."
            raise failure("invalid_request", NAME, message)
        return await asyncio.to_thread(self._embed, list(texts), dimensions)

    def _embed(self, texts: list[str], dimensions: int | None) -> Embeddings:
        matrix, tokenizer = self._files()
        encoded = tokenizer.encode_batch([clean_text(text[:_LONGEST]) for text in texts], add_special_tokens=False)
        vectors = tuple(_unit(matrix, encoding.ids, dimensions) for encoding in encoded)
        return Embeddings(vectors, Usage(prompt_tokens=sum(len(encoding.ids) for encoding in encoded)))

    def _files(self) -> "tuple[np.ndarray[Any, Any], Tokenizer]":
        with self._lock:
            if self._read is None:
                self._read = _read(self._folder)
            return self._read


def offline_embedder() -> OfflineEmbedder:
    """Give the embedder. Raises `ProviderUnavailableError` when its package is not installed; reads no file yet."""
    found = {name: find_spec(name) for name in ("numpy", "tokenizers", MODEL)}
    places = (found[MODEL].submodule_search_locations if found[MODEL] else None) or []
    folder = next((Path(place) for place in places), None)
    if None in found.values() or folder is None or not all((folder / file).is_file() for file in _FILES):
        message = (
            f"The model {NAME}:{MODEL} needs packages that are not installed: pip install numpy tokenizers wordllama."
        )
        raise ProviderUnavailableError(message, provider=NAME)
    return OfflineEmbedder(folder)


def _read(folder: Path) -> "tuple[np.ndarray[Any, Any], Tokenizer]":
    """Read the two files. The package itself is not imported: it would set up logging for the whole process."""
    import numpy as np  # noqa: PLC0415 - an extra that most have no use for
    from tokenizers import Tokenizer  # noqa: PLC0415 - see above

    weights, words = (folder / file for file in _FILES)
    with weights.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(size))
        (table,) = (entry for name, entry in head.items() if name != "__metadata__")
        numbers = np.frombuffer(file.read(), dtype="<f2").astype(np.float32)
    return numbers.reshape(table["shape"]), Tokenizer.from_file(str(words))


def _unit(matrix: "np.ndarray[Any, Any]", tokens: list[int], dimensions: int | None) -> tuple[float, ...]:
    width: int = matrix.shape[1] if dimensions is None else min(dimensions, matrix.shape[1])
    if not tokens:
        return (0.0,) * width
    mean: list[float] = matrix[tokens, :width].mean(axis=0, dtype="float64").tolist()
    length = math.hypot(*mean)
    return tuple(number / length for number in mean) if length else (0.0,) * width
