"""Finds chunks of documents: by their words, and by what they mean where their vectors were stored.

Nothing is found that the caller may not see: the condition of `documents.visible` is part of every search. Vectors are
stored as plain arrays, so that a database without pgvector works; with it they are compared exactly, as `vector`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, and_, cast, func, literal, or_, select, text, tuple_
from sqlalchemy.dialects.postgresql import JSONB, REGCONFIG, TSQUERY
from sqlalchemy.types import UserDefinedType

from app.domain.documents import FoundChunk, Lookup
from app.domain.frozen import dataclass
from app.store.database import Connection
from app.store.documents import visible
from app.store.tables import document_chunks, documents

CONFIGURATIONS: Final = {
    "ar": "arabic", "hy": "armenian", "eu": "basque", "ca": "catalan", "da": "danish", "nl": "dutch", "en": "english",
    "fi": "finnish", "fr": "french", "de": "german", "el": "greek", "hi": "hindi", "hu": "hungarian",
    "id": "indonesian", "ga": "irish", "it": "italian", "lt": "lithuanian", "ne": "nepali", "no": "norwegian",
    "nb": "norwegian", "nn": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian",
    "es": "spanish", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""The Postgres text search configurations by language; another language is read as `simple`, in which only the very
word is found."""

MOST_WORDS: Final = 64
_doc = documents.c
_part = document_chunks.c


class Vector(UserDefinedType[Any]):
    """pgvector's type, of as many dimensions as the vectors have: an index on the same expression is then used."""

    cache_ok = True

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions

    def get_col_spec(self, **_: Any) -> str:
        """Give the type's name."""
        return f"vector({self.dimensions})"


def configuration(language: str | None) -> str:
    """Give the Postgres configuration for a language, such as `de` or `pt-BR`."""
    return CONFIGURATIONS.get((language or "").split("-")[0].lower(), "simple")


@dataclass(frozen=True, slots=True)
class Shelves:
    """What a search has before it: the configurations of the documents that may be found, and how they are embedded."""

    configurations: tuple[str, ...]
    embedding_models: frozenset[str]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that shares words with the query: those words, as Postgres has them."""

    chunk: FoundChunk
    shared: tuple[str, ...]


async def shelves(connection: Connection, lookup: Lookup) -> Shelves:
    """Tell what there is to search; without documents, nothing else needs to be asked."""
    rows = (await connection.execute(select(_doc.words, _doc.embedding_model).where(_within(lookup)).distinct())).all()
    models = frozenset(row.embedding_model for row in rows if row.embedding_model)
    return Shelves(tuple(sorted({row.words for row in rows})), models)


async def words_of(connection: Connection, query: str, configurations: Sequence[str]) -> list[str]:
    """Give the query's words as the configurations read them, those that say nothing left out."""
    found: dict[str, None] = {}
    for config in configurations:
        vector = func.to_tsvector(literal(config, REGCONFIG), query)
        found |= dict.fromkeys(await connection.scalar(select(func.tsvector_to_array(vector))) or [])
    return list(found)[:MOST_WORDS]


async def by_words(connection: Connection, lookup: Lookup, words: Sequence[str], limit: int) -> list[Candidate]:
    """Give chunks that hold at least one of the words, those with more of them first."""
    asked = cast(literal(any_of(words)), TSQUERY)
    held = func.tsvector_to_array(_part.words).label("held")
    query = _chunks(lookup).add_columns(held).where(_part.words.op("@@")(asked))
    rows = await connection.execute(query.order_by(func.ts_rank(_part.words, asked).desc()).limit(limit))
    return [Candidate(_found(row), tuple(word for word in words if word in set(row.held))) for row in rows]


async def by_meaning(
    connection: Connection, lookup: Lookup, vector: Sequence[float], model: str, limit: int
) -> list[FoundChunk]:
    """Give the chunks whose vectors of that model are nearest, with their cosine similarity as score."""
    kind = Vector(len(vector))
    distance = cast(_part.embedding, kind).op("<=>")(cast(literal(list(vector), _part.embedding.type), kind))
    query = _chunks(lookup).add_columns(distance.label("distance")).where(_part.embedding_model == model)
    rows = await connection.execute(query.order_by(distance).limit(limit))
    return [_found(row, 1 - float(row.distance)) for row in rows]


async def vectors(
    connection: Connection, organization_id: str, found: Sequence[FoundChunk]
) -> dict[str, Sequence[float]]:
    """Give the vectors of chunks by the chunks' ids, of those that have one; all of one model and length."""
    places = [(chunk.document_id, chunk.number) for chunk in found]
    query = select(_part.document_id, _part.number, _part.embedding_model, _part.embedding).where(
        _part.organization_id == organization_id, tuple_(_part.document_id, _part.number).in_(places)
    )
    told = (await connection.execute(query.where(_part.embedding.is_not(None)))).all()
    models = Counter(row.embedding_model for row in told).most_common(1)
    return {f"{row.document_id}#{row.number}": row.embedding for row in told if row.embedding_model == models[0][0]}


async def has_vectors(connection: Connection) -> bool:
    """Tell whether the database has pgvector."""
    return await connection.scalar(text("SELECT 1 FROM pg_extension WHERE extname = 'vector'")) is not None


def any_of(words: Sequence[str]) -> str:
    """Give the query for texts that hold at least one of the words, each as Postgres has it."""
    return " | ".join(map(_quoted, words))


def _within(lookup: Lookup) -> ColumnElement[bool]:
    begun = or_(_doc.effective_at.is_(None), _doc.effective_at <= func.now())
    allowed = and_(
        visible(lookup.caller, lookup.conversation),
        begun,
        or_(_doc.expires_at.is_(None), _doc.expires_at > func.now()),
    )
    if lookup.metadata:
        allowed = and_(allowed, cast(_doc.metadata, JSONB).contains(dict(lookup.metadata)))
    if lookup.collections is None:
        return allowed
    return and_(allowed, _doc.collection.in_(list(lookup.collections)))


def _chunks(lookup: Lookup) -> Select[Any]:
    joined = and_(_part.organization_id == _doc.organization_id, _part.document_id == _doc.document_id)
    return (
        select(
            _part.document_id,
            _part.number,
            _doc.collection,
            _part.content,
            _part.heading,
            _doc.title,
            _doc.source,
            _doc.metadata.label("about"),
        )
        .join(documents, joined)
        .where(_within(lookup))
    )


def _found(row: Row[Any], score: float = 0.0) -> FoundChunk:
    names = ("document_id", "number", "collection", "content", "heading", "title", "source")
    values = {name: getattr(row, name) for name in names}
    return FoundChunk(**values, metadata=row.about, score=score)


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
