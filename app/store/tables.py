"""The tables.

Every key that a conversation's rows share begins with its row key, so that all of them can be distributed by it
without a change to the code. What a session keeps is keyed by the session, and no foreign key leads out of it.
"""

from typing import Final

from sqlalchemy import (
    ARRAY,
    JSON,
    REAL,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Sequence,
    Table,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import TSVECTOR

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

fences: Final = Sequence("fences", metadata=metadata, data_type=BigInteger)
"""One sequence for all fences: a fence names one operation anywhere, and only grows."""


def _time(name: str, *, default: bool = False, nullable: bool = True) -> Column[object]:
    server_default = func.now() if default else None
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=server_default)


def _conversation() -> Column[object]:
    return Column("conversation", Uuid, ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True)


def _session() -> tuple[Column[object], ...]:
    return tuple(Column(name, Text, primary_key=True) for name in ("organization_id", "user_id", "session_id"))


conversations: Final = Table(
    "conversations",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("conversation_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("persona_id", Text),
    Column("title", Text),
    Column("metadata", JSON, nullable=False, server_default=text("'{}'")),
    Column("preparation", JSON, nullable=False, server_default=text("'{}'")),
    Column("fence", BigInteger, nullable=False),
    Column("running_operation", Uuid),
    Column("running_replica", Uuid),
    Column("running_stream", Text),
    Column("cancel_fence", BigInteger),
    _time("created_at", default=True, nullable=False),
    _time("updated_at", default=True, nullable=False),
    Index("ix_conversations_owner", "organization_id", "user_id", "updated_at", "id"),
    Index("ix_conversations_running", "running_replica", postgresql_where=text("running_operation IS NOT NULL")),
)

messages: Final = Table(
    "messages",
    metadata,
    _conversation(),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("message_id", Text, nullable=False),
    Column("turn_id", Text),
    Column("role", Text, nullable=False),
    Column("content", JSON(none_as_null=True)),
    Column("tool_calls", JSON(none_as_null=True)),
    Column("tool_call_id", Text),
    Column("name", Text),
    Column("is_error", Boolean, nullable=False, server_default=text("false")),
    Column("not_sent", Boolean, nullable=False, server_default=text("false")),
    Column("metadata", JSON(none_as_null=True)),
    _time("created_at", default=True, nullable=False),
    Index("ix_messages_summaries", "conversation", "position", postgresql_where=text("role = 'summary'")),
)

rolling_summaries: Final = Table(
    "rolling_summaries",
    metadata,
    _conversation(),
    Column("version", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Column("memory", JSON(none_as_null=True)),
    Column("covers", JSON, nullable=False),
    Column("message_count", Integer, nullable=False),
    Column("head", Integer),
    Column("at_limit", Boolean, nullable=False, server_default=text("false")),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("failed", JSON(none_as_null=True)),
    _time("made_at"),
    _time("updated_at", default=True, nullable=False),
)

inbound_messages: Final = Table(
    "inbound_messages",
    metadata,
    _conversation(),
    Column("operation", Uuid, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("stream_id", Text, nullable=False),
    Column("turn_id", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False, server_default=text("1")),
    Column("touched", Boolean, nullable=False, server_default=text("false")),
    Column("pause_id", Text),
    Column("payload", JSON, nullable=False),
    Column("journal", ARRAY(JSON), nullable=False, server_default=text("'{}'")),
    Column("idempotency_key", Text),
    Column("request_hash", Text),
    Column("place", BigInteger),
    Column("replica", Uuid),
    _time("created_at", default=True, nullable=False),
    _time("ended_at"),
    Index(
        "uq_inbound_messages_key",
        "conversation",
        "kind",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    Index("ix_inbound_messages_waiting", "conversation", "place", postgresql_where=text("status = 'waiting'")),
)

pauses: Final = Table(
    "pending_external_tool_requests",
    metadata,
    _conversation(),
    Column("pause_id", Text, primary_key=True),
    Column("organization_id", Text, nullable=False),
    Column("conversation_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("persona_id", Text, nullable=False),
    Column("stream_id", Text, nullable=False),
    Column("turn_id", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("end_reason", Text),
    Column("tool_calls", JSON, nullable=False),
    Column("results", JSON, nullable=False, server_default=text("'[]'")),
    Column("rationale", Text),
    Column("snapshot", JSON(none_as_null=True)),
    _time("requested_at", default=True, nullable=False),
    _time("expires_at"),
    Column("on_expiry", Text, nullable=False, server_default=text("'close'")),
    _time("resolved_at"),
    Index(
        "uq_pending_external_tool_requests_held", "conversation", unique=True, postgresql_where=text("state = 'held'")
    ),
    Index(
        "ix_pending_external_tool_requests_waiting",
        "organization_id",
        "user_id",
        "requested_at",
        "pause_id",
        postgresql_where=text("state = 'held'"),
    ),
    Index(
        "ix_pending_external_tool_requests_expiring",
        "expires_at",
        postgresql_where=text("state = 'held' AND expires_at IS NOT NULL"),
    ),
)

streams: Final = Table(
    "streams",
    metadata,
    _conversation(),
    Column("stream_id", Text, primary_key=True),
    Column("turn_id", Text, nullable=False),
    Column("persona_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("close_reason", Text),
    Column("fence", BigInteger, nullable=False),
    Column("fences", ARRAY(BigInteger), nullable=False),
    Column("ends", JSON, nullable=False, server_default=text("'[]'")),
    Column("pause_id", Text),
    Column("usage", JSON(none_as_null=True)),
    Column("final_response", JSON(none_as_null=True)),
    Column("error", JSON(none_as_null=True)),
    Column("continued_on", Text),
    Column("ephemeral", Boolean, nullable=False, server_default=text("false")),
    _time("created_at", default=True, nullable=False),
    _time("ended_at"),
    Column("expired", Boolean, nullable=False, server_default=text("false")),
    Index("ix_streams_unexpired", "ended_at", postgresql_where=text("ended_at IS NOT NULL AND NOT expired")),
)

stream_events: Final = Table(
    "stream_events",
    metadata,
    _conversation(),
    Column("stream_id", Text, primary_key=True),
    Column("fence", BigInteger, primary_key=True, autoincrement=False),
    Column("first_n", Integer, primary_key=True, autoincrement=False),
    Column("last_n", Integer, nullable=False),
    Column("frames", LargeBinary, nullable=False),
)

turn_prompts: Final = Table(
    "turn_prompts",
    metadata,
    _conversation(),
    Column("stream_id", Text, primary_key=True),
    Column("fence", BigInteger, primary_key=True, autoincrement=False),
    Column("document", JSON, nullable=False),
    _time("created_at", default=True, nullable=False),
)

usage_ledger: Final = Table(
    "usage_ledger",
    metadata,
    _conversation(),
    Column("fence", BigInteger, primary_key=True, autoincrement=False),
    Column("n", Integer, primary_key=True, autoincrement=False),
    Column("stream_id", Text, nullable=False),
    Column("turn_id", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("hop", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason", Text),
    Column("status", Integer),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("estimated", Boolean, nullable=False),
    Column("cost", Double),
    Column("first_output_seconds", Double),
    Column("seconds", Double, nullable=False),
    _time("created_at", default=True, nullable=False),
)

session_state: Final = Table(
    "session_state",
    metadata,
    *_session(),
    Column("mood", Text),
    Column("user_context", JSON, nullable=False, server_default=text("'{}'")),
    Column("task_context", JSON, nullable=False, server_default=text("'{}'")),
    Column("mind", JSON, nullable=False, server_default=text("'{}'")),
    Column("overrides", JSON, nullable=False, server_default=text("'{}'")),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("traced", BigInteger, nullable=False, server_default=text("0")),
    _time("created_at", default=True, nullable=False),
    _time("updated_at", default=True, nullable=False),
)

reasoning_traces: Final = Table(
    "reasoning_traces",
    metadata,
    *_session(),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("conversation", Uuid, nullable=False),
    Column("conversation_id", Text, nullable=False),
    Column("stream_id", Text, nullable=False),
    Column("turn_id", Text, nullable=False),
    Column("persona_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("related_id", Text),
    Column("details", JSON(none_as_null=True)),
    _time("at", nullable=False),
    Index("ix_reasoning_traces_conversation", "conversation"),
)

documents: Final = Table(
    "documents",
    metadata,
    Column("organization_id", Text, primary_key=True),
    Column("document_id", Text, primary_key=True),
    Column("scope", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("conversation", Uuid),
    Column("conversation_id", Text),
    Column("collection", Text, nullable=False),
    Column("title", Text),
    Column("source", Text),
    Column("content_type", Text, nullable=False),
    Column("language", Text),
    Column("words", Text, nullable=False),
    Column("metadata", JSON, nullable=False, server_default=text("'{}'")),
    Column("characters", Integer, nullable=False),
    Column("chunk_count", Integer, nullable=False),
    Column("embedding_model", Text),
    _time("effective_at"),
    _time("expires_at"),
    _time("created_at", nullable=False),
    Index("ix_documents_newest", "organization_id", "created_at", "document_id"),
    Index("ix_documents_conversation", "conversation", postgresql_where=text("conversation IS NOT NULL")),
)

document_chunks: Final = Table(
    "document_chunks",
    metadata,
    Column("organization_id", Text, primary_key=True),
    Column("document_id", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("heading", Text),
    Column("content", Text, nullable=False),
    Column("words", TSVECTOR, nullable=False),
    Column("embedding_model", Text),
    Column("embedding", ARRAY(REAL)),
    ForeignKeyConstraint(
        ["organization_id", "document_id"],
        ["documents.organization_id", "documents.document_id"],
        name="fk_document_chunks_documents",
        ondelete="CASCADE",
    ),
    Index("ix_document_chunks_words", "words", postgresql_using="gin"),
)

task_outcome_windows: Final = Table(
    "task_outcome_windows",
    metadata,
    Column("scope_key", Text, primary_key=True),
    Column("samples", JSON, nullable=False, server_default=text("'[]'")),
)

memory_traces: Final = Table(
    "memory_traces",
    metadata,
    Column("organization_id", Text, primary_key=True),
    Column("trace_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("scope_id", Text, nullable=False),
    Column("conversation", Uuid, nullable=False),
    Column("conversation_id", Text, nullable=False),
    Column("persona_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("category", Text),
    Column("content", Text, nullable=False),
    Column("valence", Double, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("strength", Double, nullable=False),
    Column("stability", Double, nullable=False),
    Column("intensity", Double, nullable=False),
    Column("importance", Double, nullable=False),
    Column("recalled", Integer, nullable=False),
    Column("links", JSON, nullable=False),
    Column("words", TSVECTOR, nullable=False),
    Column("embedding_model", Text),
    Column("embedding", ARRAY(REAL)),
    _time("created_at", nullable=False),
    _time("accessed_at", nullable=False),
    Index("ix_memory_traces_scope", "organization_id", "scope", "scope_id", "created_at"),
    Index("ix_memory_traces_user", "organization_id", "user_id", "created_at", "trace_id"),
    Index("ix_memory_traces_conversation", "conversation"),
)

replicas: Final = Table(
    "replicas",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("dead", Boolean, nullable=False, server_default=text("false")),
    _time("started_at", default=True, nullable=False),
    _time("expires_at", nullable=False),
)
