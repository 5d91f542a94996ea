"""The first tables.

Revision: a1f0e5c2d301
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "a1f0e5c2d301"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables forward."""
    op.execute(sa.schema.CreateSequence(sa.Sequence("fences", data_type=sa.BigInteger())))
    op.create_table(
        "conversations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("persona_id", sa.Text(), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("metadata", sa.JSON(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("preparation", sa.JSON(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("running_operation", sa.Uuid(), nullable=True),
        sa.Column("running_replica", sa.Uuid(), nullable=True),
        sa.Column("running_stream", sa.Text(), nullable=True),
        sa.Column("cancel_fence", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_conversations")),
    )
    op.create_index(
        "ix_conversations_owner", "conversations", ["organization_id", "user_id", "updated_at", "id"], unique=False
    )
    op.create_index(
        "ix_conversations_running",
        "conversations",
        ["running_replica"],
        unique=False,
        postgresql_where=sa.text("running_operation IS NOT NULL"),
    )
    op.create_table(
        "documents",
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("document_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Uuid(), nullable=True),
        sa.Column("conversation_id", sa.Text(), nullable=True),
        sa.Column("collection", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.Column("language", sa.Text(), nullable=True),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("metadata", sa.JSON(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("characters", sa.Integer(), nullable=False),
        sa.Column("chunk_count", sa.Integer(), nullable=False),
        sa.Column("embedding_model", sa.Text(), nullable=True),
        sa.Column("effective_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "document_id", name=op.f("pk_documents")),
    )
    op.create_index(
        "ix_documents_conversation",
        "documents",
        ["conversation"],
        unique=False,
        postgresql_where=sa.text("conversation IS NOT NULL"),
    )
    op.create_index("ix_documents_newest", "documents", ["organization_id", "created_at", "document_id"], unique=False)
    op.create_table(
        "memory_traces",
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Uuid(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("persona_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("valence", sa.Double(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("strength", sa.Double(), nullable=False),
        sa.Column("stability", sa.Double(), nullable=False),
        sa.Column("intensity", sa.Double(), nullable=False),
        sa.Column("importance", sa.Double(), nullable=False),
        sa.Column("recalled", sa.Integer(), nullable=False),
        sa.Column("links", sa.JSON(), nullable=False),
        sa.Column("words", postgresql.TSVECTOR(), nullable=False),
        sa.Column("embedding_model", sa.Text(), nullable=True),
        sa.Column("embedding", sa.ARRAY(sa.REAL()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("accessed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "trace_id", name=op.f("pk_memory_traces")),
    )
    op.create_index("ix_memory_traces_conversation", "memory_traces", ["conversation"], unique=False)
    op.create_index(
        "ix_memory_traces_scope", "memory_traces", ["organization_id", "scope", "scope_id", "created_at"], unique=False
    )
    op.create_index(
        "ix_memory_traces_user", "memory_traces", ["organization_id", "user_id", "created_at", "trace_id"], unique=False
    )
    op.create_table(
        "reasoning_traces",
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("conversation", sa.Uuid(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("stream_id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("persona_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("related_id", sa.Text(), nullable=True),
        sa.Column("details", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "organization_id", "user_id", "session_id", "position", name=op.f("pk_reasoning_traces")
        ),
    )
    op.create_index("ix_reasoning_traces_conversation", "reasoning_traces", ["conversation"], unique=False)
    op.create_table(
        "replicas",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("dead", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replicas")),
    )
    op.create_table(
        "session_state",
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("mood", sa.Text(), nullable=True),
        sa.Column("user_context", sa.JSON(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("task_context", sa.JSON(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("mind", sa.JSON(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("overrides", sa.JSON(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("traced", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "user_id", "session_id", name=op.f("pk_session_state")),
    )
    op.create_table(
        "task_outcome_windows",
        sa.Column("scope_key", sa.Text(), nullable=False),
        sa.Column("samples", sa.JSON(), server_default=sa.text("'[]'"), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", name=op.f("pk_task_outcome_windows")),
    )
    op.create_table(
        "document_chunks",
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("document_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("heading", sa.Text(), nullable=True),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("words", postgresql.TSVECTOR(), nullable=False),
        sa.Column("embedding_model", sa.Text(), nullable=True),
        sa.Column("embedding", sa.ARRAY(sa.REAL()), nullable=True),
        sa.ForeignKeyConstraint(
            ["organization_id", "document_id"],
            ["documents.organization_id", "documents.document_id"],
            name="fk_document_chunks_documents",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organization_id", "document_id", "number", name=op.f("pk_document_chunks")),
    )
    op.create_index("ix_document_chunks_words", "document_chunks", ["words"], unique=False, postgresql_using="gin")
    op.create_table(
        "inbound_messages",
        sa.Column("conversation", sa.Uuid(), nullable=False),
        sa.Column("operation", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stream_id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("touched", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("pause_id", sa.Text(), nullable=True),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("journal", sa.ARRAY(sa.JSON()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.Text(), nullable=True),
        sa.Column("place", sa.BigInteger(), nullable=True),
        sa.Column("replica", sa.Uuid(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["conversation"],
            ["conversations.id"],
            name=op.f("fk_inbound_messages_conversation_conversations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation", "operation", name=op.f("pk_inbound_messages")),
    )
    op.create_index(
        "ix_inbound_messages_waiting",
        "inbound_messages",
        ["conversation", "place"],
        unique=False,
        postgresql_where=sa.text("status = 'waiting'"),
    )
    op.create_index(
        "uq_inbound_messages_key",
        "inbound_messages",
        ["conversation", "kind", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_table(
        "messages",
        sa.Column("conversation", sa.Uuid(), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("tool_calls", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("tool_call_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("is_error", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("not_sent", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("metadata", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation"],
            ["conversations.id"],
            name=op.f("fk_messages_conversation_conversations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation", "position", name=op.f("pk_messages")),
    )
    op.create_index(
        "ix_messages_summaries",
        "messages",
        ["conversation", "position"],
        unique=False,
        postgresql_where=sa.text("role = 'summary'"),
    )
    op.create_table(
        "pending_external_tool_requests",
        sa.Column("conversation", sa.Uuid(), nullable=False),
        sa.Column("pause_id", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("persona_id", sa.Text(), nullable=False),
        sa.Column("stream_id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("tool_calls", sa.JSON(), nullable=False),
        sa.Column("results", sa.JSON(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("rationale", sa.Text(), nullable=True),
        sa.Column("snapshot", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("on_expiry", sa.Text(), server_default=sa.text("'close'"), nullable=False),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["conversation"],
            ["conversations.id"],
            name=op.f("fk_pending_external_tool_requests_conversation_conversations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation", "pause_id", name=op.f("pk_pending_external_tool_requests")),
    )
    op.create_index(
        "ix_pending_external_tool_requests_expiring",
        "pending_external_tool_requests",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("state = 'held' AND expires_at IS NOT NULL"),
    )
    op.create_index(
        "ix_pending_external_tool_requests_waiting",
        "pending_external_tool_requests",
        ["organization_id", "user_id", "requested_at", "pause_id"],
        unique=False,
        postgresql_where=sa.text("state = 'held'"),
    )
    op.create_index(
        "uq_pending_external_tool_requests_held",
        "pending_external_tool_requests",
        ["conversation"],
        unique=True,
        postgresql_where=sa.text("state = 'held'"),
    )
    op.create_table(
        "rolling_summaries",
        sa.Column("conversation", sa.Uuid(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("memory", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("covers", sa.JSON(), nullable=False),
        sa.Column("message_count", sa.Integer(), nullable=False),
        sa.Column("head", sa.Integer(), nullable=True),
        sa.Column("at_limit", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation"],
            ["conversations.id"],
            name=op.f("fk_rolling_summaries_conversation_conversations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation", name=op.f("pk_rolling_summaries")),
    )
    op.create_table(
        "stream_events",
        sa.Column("conversation", sa.Uuid(), nullable=False),
        sa.Column("stream_id", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("last_n", sa.Integer(), nullable=False),
        sa.Column("frames", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation"],
            ["conversations.id"],
            name=op.f("fk_stream_events_conversation_conversations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation", "stream_id", "fence", "first_n", name=op.f("pk_stream_events")),
    )
    op.create_table(
        "streams",
        sa.Column("conversation", sa.Uuid(), nullable=False),
        sa.Column("stream_id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("persona_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("close_reason", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("fences", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("ends", sa.JSON(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("pause_id", sa.Text(), nullable=True),
        sa.Column("usage", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("final_response", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("continued_on", sa.Text(), nullable=True),
        sa.Column("ephemeral", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expired", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation"],
            ["conversations.id"],
            name=op.f("fk_streams_conversation_conversations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation", "stream_id", name=op.f("pk_streams")),
    )
    op.create_index(
        "ix_streams_unexpired",
        "streams",
        ["ended_at"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NOT NULL AND NOT expired"),
    )
    op.create_table(
        "turn_prompts",
        sa.Column("conversation", sa.Uuid(), nullable=False),
        sa.Column("stream_id", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation"],
            ["conversations.id"],
            name=op.f("fk_turn_prompts_conversation_conversations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation", "stream_id", "fence", name=op.f("pk_turn_prompts")),
    )
    op.create_table(
        "usage_ledger",
        sa.Column("conversation", sa.Uuid(), nullable=False),
        sa.Column("fence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stream_id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("hop", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("cost", sa.Double(), nullable=True),
        sa.Column("first_output_seconds", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation"],
            ["conversations.id"],
            name=op.f("fk_usage_ledger_conversation_conversations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation", "fence", "n", name=op.f("pk_usage_ledger")),
    )


def downgrade() -> None:
    """Take the change back."""
    op.drop_table("usage_ledger")
    op.drop_table("turn_prompts")
    op.drop_index(
        "ix_streams_unexpired", table_name="streams", postgresql_where=sa.text("ended_at IS NOT NULL AND NOT expired")
    )
    op.drop_table("streams")
    op.drop_table("stream_events")
    op.drop_table("rolling_summaries")
    op.drop_index(
        "uq_pending_external_tool_requests_held",
        table_name="pending_external_tool_requests",
        postgresql_where=sa.text("state = 'held'"),
    )
    op.drop_index(
        "ix_pending_external_tool_requests_waiting",
        table_name="pending_external_tool_requests",
        postgresql_where=sa.text("state = 'held'"),
    )
    op.drop_index(
        "ix_pending_external_tool_requests_expiring",
        table_name="pending_external_tool_requests",
        postgresql_where=sa.text("state = 'held' AND expires_at IS NOT NULL"),
    )
    op.drop_table("pending_external_tool_requests")
    op.drop_index("ix_messages_summaries", table_name="messages", postgresql_where=sa.text("role = 'summary'"))
    op.drop_table("messages")
    op.drop_index(
        "uq_inbound_messages_key",
        table_name="inbound_messages",
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.drop_index(
        "ix_inbound_messages_waiting", table_name="inbound_messages", postgresql_where=sa.text("status = 'waiting'")
    )
    op.drop_table("inbound_messages")
    op.drop_index("ix_document_chunks_words", table_name="document_chunks", postgresql_using="gin")
    op.drop_table("document_chunks")
    op.drop_table("task_outcome_windows")
    op.drop_table("session_state")
    op.drop_table("replicas")
    op.drop_index("ix_reasoning_traces_conversation", table_name="reasoning_traces")
    op.drop_table("reasoning_traces")
    op.drop_index("ix_memory_traces_user", table_name="memory_traces")
    op.drop_index("ix_memory_traces_scope", table_name="memory_traces")
    op.drop_index("ix_memory_traces_conversation", table_name="memory_traces")
    op.drop_table("memory_traces")
    op.drop_index("ix_documents_newest", table_name="documents")
    op.drop_index(
        "ix_documents_conversation", table_name="documents", postgresql_where=sa.text("conversation IS NOT NULL")
    )
    op.drop_table("documents")
    op.drop_index(
        "ix_conversations_running",
        table_name="conversations",
        postgresql_where=sa.text("running_operation IS NOT NULL"),
    )
    op.drop_index("ix_conversations_owner", table_name="conversations")
    op.drop_table("conversations")
    op.execute(sa.schema.DropSequence(sa.Sequence("fences")))
