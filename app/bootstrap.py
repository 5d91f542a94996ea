"""Builds the runtime from the settings: the only place that knows which concrete parts there are."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TypedDict, Unpack

import structlog

from app.conversation.tokenizer import FileTokenizer
from app.conversation.tokens import TokenCounters
from app.domain.clock import Clock, SystemClock
from app.domain.errors import ConfigurationError
from app.domain.ids import row_key
from app.domain.policy import HistoryPolicy, LeasePolicy, TenantPolicy, TurnPolicy
from app.guardrails.registry import Guards, OnVerdict
from app.guardrails.shipped import build_guards
from app.memory.embedding import embedder_of
from app.memory.library import Library
from app.memory.longterm import LongTermMemory
from app.memory.memories import Memories
from app.memory.tools import memory_tools
from app.observability.metrics import Counted, Metrics
from app.providers.billing import counting
from app.providers.doctor import Finding, examine, examine_embedding, examine_provider
from app.providers.gateway import Gateway
from app.providers.registry import ProviderRegistry, build_registry
from app.providers.setup import ModelSetup, set_up
from app.settings import Settings
from app.skills.folder import load_skills
from app.store.database import Database, driver_url
from app.store.migrate import check_current, upgrade_async
from app.store.notify import ListenBus, LookBus
from app.store.pauses import iso
from app.store.search import find_spoken
from app.streaming.log import LogWriter
from app.streaming.manager import StreamingManager
from app.streaming.ring import Rings
from app.streaming.tail import Tail
from app.streaming.wakeups import Bus, Wakeups
from app.tools.base import Tool, ToolContext
from app.tools.builtin.calculator import Calculator
from app.tools.builtin.conversation_search import ConversationSearch
from app.tools.builtin.current_time import CurrentTime
from app.tools.executor import ToolExecutor
from app.tools.functions import installed_tools
from app.tools.mcp import McpServer, McpServers
from app.tools.registry import ToolRegistry, ToolSource
from app.turn.delivery.plain_text import PlainText
from app.turn.facade.detector import LangidDetector
from app.turn.facade.judging import means_of
from app.turn.facade.languages import Languages
from app.turn.facade.lifecycle import Lifecycle
from app.turn.facade.overrides import OverridesPolicy, SessionOverrides
from app.turn.facade.retention import Retention
from app.turn.facade.self_improvement import Adapting
from app.turn.facade.service import AgentRuntime
from app.turn.facade.tenants import Tenants
from app.turn.gmi import sentiment
from app.turn.gmi.base import Gmis
from app.turn.gmi.manager import GmiManager
from app.turn.gmi.personas import PersonaFolder, Personas, load_personas
from app.turn.orchestrator.cancels import Cancels
from app.turn.orchestrator.lease import Lease
from app.turn.orchestrator.services import Services
from app.turn.orchestrator.takeover import Takeover
from app.turn.preparation.aids import aids_of

SHIPPED_PERSONAS = Path(__file__).parent / "personas"


class Parts(TypedDict, total=False):
    """What a program brings along in the place of parts, or beside them.

    `providers` stand in for those that the settings name; the runtime closes them at its end. `gmis` stands in for the
    manager that gives out the runtime's own GMI, `guards` for the guardrails that the settings name. `host_tools` are
    further tools of the runtime, and `memory` is a long-term memory. `on_verdict` is told of the verdicts of the guards
    that the settings name.
    """

    providers: ProviderRegistry | None
    gmis: Gmis | None
    guards: Guards | None
    host_tools: Sequence[Tool]
    memory: LongTermMemory | None
    on_verdict: OnVerdict | None


@asynccontextmanager
async def running(settings: Settings, **parts: Unpack[Parts]) -> AsyncIterator[AgentRuntime]:
    """Bring up the database and the runtime, give the runtime, and give everything back at the end.

    Raises ConfigurationError, DatabaseError or EmbeddedPostgresError with a sentence for the operator.
    """
    async with database_url(settings) as url:
        embedded = settings.database_url is None
        if settings.auto_migrate if settings.auto_migrate is not None else embedded:
            await upgrade_async(direct_url(settings, url))
        else:
            await check_current(url)
        runtime = build(settings, url, **parts)
        await runtime.start()
        try:
            yield runtime
        finally:
            await runtime.stop()


@asynccontextmanager
async def database_url(settings: Settings) -> AsyncIterator[str]:
    """Give the database's URL; the embedded server runs as long as this is open, if no other is set."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    from app.store.embedded.supervisor import EmbeddedPostgres  # noqa: PLC0415 - most services have a URL

    log = structlog.get_logger("app.store.embedded")
    embedded = EmbeddedPostgres(settings.data_dir, log=log.info)
    try:
        await embedded.start()
        watching = asyncio.create_task(embedded.watch(), name="embedded postgres")
        watching.add_done_callback(_end_without_database)
        try:
            yield embedded.dsn
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
    finally:
        await embedded.stop()


def _end_without_database(watching: asyncio.Task[None]) -> None:
    """End the process in order when its Postgres can't be kept up: a service without a database helps nobody."""
    if not watching.cancelled() and watching.exception() is not None:
        structlog.get_logger("app.store.embedded").error("embedded_postgres_lost", error=str(watching.exception()))
        os.kill(os.getpid(), signal.SIGTERM)


def build(
    settings: Settings,
    url: str,
    *,
    providers: ProviderRegistry | None = None,
    gmis: Gmis | None = None,
    guards: Guards | None = None,
    host_tools: Sequence[Tool] = (),
    memory: LongTermMemory | None = None,
    on_verdict: OnVerdict | None = None,
) -> AgentRuntime:
    """Put the parts together. Nothing is opened before the runtime starts; call it inside the event loop.

    `Parts` says what the further arguments are.
    """
    clock = SystemClock()
    database = Database(url, pool_size=settings.database_pool_size, pooled=settings.database_pooler == "transaction")
    rings, wakeups = Rings(), Wakeups(_bus(settings, url, database))
    models = set_up(settings.models)
    metrics = _metrics(settings, rings, wakeups)
    told = counting(metrics) if settings.metrics else None
    gateway = Gateway(providers or build_registry(models.providers, _named(settings)), models.gateway, on_attempt=told)
    personas = _personas(settings)
    overrides = SessionOverrides(database, load_skills(settings.skills_dir), _overrides_policy(settings))
    embedder = embedder_of(gateway.registry, models.roles.embedding, told)
    memories = memory or Memories(database, clock, embedder)
    attached = _attached(settings, personas, memory, memories)
    adapting = Adapting(overrides, personas.known)
    tools = ToolExecutor(
        _registry(settings, database, clock, memories, [*adapting.tools(), *host_tools]),
        timeout=settings.tool_timeout_seconds,
        max_output_bytes=settings.max_result_bytes,
    )
    guards = guards or _guards(settings, models, gateway, personas, on_verdict)
    personas.demand(tools.registry.check_persona, guards.check_persona, adapting.check, sentiment.check_persona)
    lease = Lease(database, clock, LeasePolicy(settings.lease_renew_seconds, settings.lease_seconds), rings=rings)
    services = Services(
        database=database,
        rings=rings,
        log=LogWriter(database, rings, interval=settings.flush_milliseconds / 1000, wakeups=wakeups),
        wakeups=wakeups,
        streaming=StreamingManager(),
        lease=lease,
        cancels=Cancels(database, lambda: lease.id),
        clock=clock,
        gateway=gateway,
        personas=personas,
        gmis=gmis or GmiManager(gateway, tools, metrics),
        tools=tools,
        counters=TokenCounters({model: FileTokenizer(path) for model, path in models.tokenizers.items()}),
        plain_text=PlainText(),
        guards=guards,
        library=Library(database, clock, embedder, longest=settings.max_document_characters),
        memories=memories,
        policy=_turn_policy(settings, models),
        aids=aids_of(settings, database, clock, skills=overrides.skills, embedder=embedder, attached=attached),
        secrets=tuple(_secrets(settings)),
        metrics=metrics,
    )
    return _runtime(settings, services, overrides)


def _attached(
    settings: Settings, personas: Personas, own: LongTermMemory | None, memories: LongTermMemory
) -> Callable[[], LongTermMemory | None]:
    """Give what gives the memory while a host, a policy or a persona asks for one.

    Personas may change; where nobody asks, no turn looks what its conversation says of memory.
    """
    always = own is not None or bool(settings.long_term_memory_policy)
    return lambda: memories if always or personas.remember else None


def _personas(settings: Settings) -> Personas:
    return Personas(load_personas(settings.personas_dir or SHIPPED_PERSONAS), default_id=settings.default_persona_id)


def _guards(
    settings: Settings, models: ModelSetup, gateway: Gateway, personas: Personas, on_verdict: OnVerdict | None
) -> Guards:
    return build_guards(
        settings,
        means_of(gateway, settings.guardrail_options, models.roles.utility, _secrets(settings)),
        named=[name for persona in personas.all() for name in persona.guardrails],
        on_verdict=on_verdict,
    )


def _metrics(settings: Settings, rings: Rings, wakeups: Wakeups) -> Metrics:
    metrics = Counted() if settings.metrics else Metrics()
    metrics.watch("streams_running", "Operations that run in this process.", lambda: len(rings.all()))
    metrics.watch("stream_readers", "Readers of streams in this process.", lambda: wakeups.readers)
    return metrics


def _runtime(settings: Settings, services: Services, overrides: SessionOverrides) -> AgentRuntime:
    """Put the facade on the parts that operations share."""
    lease = services.lease
    takeover = Takeover(services, interval=min(2.0, settings.lease_seconds / 4), most_reruns=settings.max_reruns)
    tail = Tail(
        services.database,
        services.rings,
        services.wakeups,
        heartbeat=settings.heartbeat_seconds,
        may_send=lease.holds,
    )
    keep, faded = timedelta(hours=settings.event_retention_hours), timedelta(days=settings.faded_memory_days)
    retention = Retention(services.database, keep=keep, faded=faded)
    lifecycle = Lifecycle(services, takeover, retention, drain_grace=settings.drain_grace_seconds)
    if settings.personas_dir is not None and settings.personas_reload_seconds > 0:
        lifecycle.watch(
            PersonaFolder(settings.personas_dir, services.personas, interval=settings.personas_reload_seconds)
        )
    return AgentRuntime(
        services,
        tail,
        lifecycle,
        Tenants(services.policy.tenants),
        languages=Languages(settings.language_policy, LangidDetector),
        overrides=overrides,
    )


async def examine_models(settings: Settings, named: Sequence[str] = ()) -> list[Finding]:
    """Ask each model once: those that are named, else all that settings, file and personas name.

    A provider that is set up and of which no model is named is asked which models it has.
    """
    models = set_up(settings.models)
    registry = build_registry(models.providers)
    roles, asked = models.roles, tuple(named)
    if not asked:
        personas = load_personas(settings.personas_dir or SHIPPED_PERSONAS).values()
        own = (persona.model for persona in personas if persona.model is not None)
        asked = (roles.chat, roles.utility, *models.gateway.fallbacks, *registry.described, *own)
    try:
        once = [model_id for model_id in dict.fromkeys(asked) if model_id != roles.embedding]
        found = await examine(registry, once)
        if roles.embedding is not None and (not named or roles.embedding in named):
            found.append(await examine_embedding(registry, roles.embedding))
        if not named:
            known = {model_id.partition(":")[0] for model_id in (*asked, roles.embedding or "")}
            others = [name for name in registry.chosen if name not in known]
            found += await asyncio.gather(*(examine_provider(registry, name) for name in others))
    finally:
        await registry.aclose()
    return found


def _registry(
    settings: Settings, database: Database, clock: Clock, memories: LongTermMemory, further: Sequence[Tool]
) -> ToolRegistry:
    """Register the tools that ship, those of packages, those of the file with its MCP servers, and further ones."""

    async def search(context: ToolContext, words: Sequence[str], limit: int) -> list[dict[str, object]]:
        conversation = row_key(context.caller.organization_id, context.conversation_id)
        async with database.transaction() as connection:
            found = await find_spoken(connection, conversation, words, limit)
        return [
            {"position": one.position, "role": one.role, "text": one.text, "time": iso(one.created_at)} for one in found
        ]

    shipped: list[Tool] = [CurrentTime(clock), Calculator(), ConversationSearch(search)]
    shipped += memory_tools(memories, on=settings.enable_conversational_persistence)
    declared: list[Tool] = []
    sources: list[ToolSource] = []
    if settings.tools_file is not None:
        from app.tools.web import read_tools_file  # noqa: PLC0415 - its HTTP client takes long, and most have no such file

        try:
            text = settings.tools_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            message = f"The file of tools {settings.tools_file} can't be read; set FERMATA_TOOLS_FILE to one that can."
            raise ConfigurationError(message) from None
        called, servers = read_tools_file(text, settings.models.environment, settings.tools_file.name)
        declared += called
        if servers:
            sources.append(McpServers([McpServer(part, private=private) for part, private in servers]))
    return ToolRegistry([*shipped, *installed_tools(), *declared, *further], sources, disabled=settings.disabled_tools)


def _bus(settings: Settings, url: str, database: Database) -> Bus:
    if settings.wakeups == "poll":
        return LookBus(database)
    return ListenBus(direct_url(settings, url))


def _named(settings: Settings) -> dict[str, str | None]:
    fields = ("default_model", "utility_model", "embedding_model")
    return {f"FERMATA_{field.upper()}": getattr(settings, field) for field in fields}


def direct_url(settings: Settings, url: str) -> str:
    """Give the URL that leads to the database itself: sessions are kept there, as migrations and LISTEN need.

    Raises ConfigurationError that names its own setting.
    """
    if settings.listen_database_url is None:
        return url
    direct = settings.listen_database_url.get_secret_value()
    driver_url(direct, "FERMATA_LISTEN_DATABASE_URL")
    return direct


def _turn_policy(settings: Settings, models: ModelSetup) -> TurnPolicy:
    return TurnPolicy(
        default_model=models.roles.chat,
        utility_model=models.roles.utility,
        max_tool_iterations=settings.max_tool_call_iterations,
        tool_concurrency=settings.tool_concurrency,
        turn_timeout=settings.turn_timeout_seconds,
        history=_history_policy(settings, models),
        persistence=settings.enable_conversational_persistence,
        max_result_bytes=settings.max_result_bytes,
        max_waiting_turns=settings.max_waiting_turns,
        trace_entries=settings.reasoning_trace_entries,
        keep_prompts=settings.keep_prompts,
        tenants=_tenants(settings),
    )


def _overrides_policy(settings: Settings) -> OverridesPolicy:
    return OverridesPolicy(
        on=settings.session_overrides or settings.skills_dir is not None,
        persistence=settings.enable_conversational_persistence,
    )


def _tenants(settings: Settings) -> TenantPolicy:
    return TenantPolicy(
        single=settings.tenant_mode == "single_tenant",
        default=(settings.default_organization_id or "").strip(),
        strict=settings.strict_organization_isolation,
    )


def _history_policy(settings: Settings, models: ModelSetup) -> HistoryPolicy:
    return HistoryPolicy(
        limit=settings.max_history_length_messages,
        head=settings.messages_to_keep_verbatim_head,
        tail=settings.messages_to_keep_verbatim_tail,
        chunk=settings.summarization_chunk_size,
        summarize_at_limit=settings.enable_automatic_summarization,
        summary=settings.rolling_summary_compaction.policy(),
        context_windows={**models.windows, **settings.context_windows},
        default_window=settings.default_context_window,
    )


def _secrets(settings: Settings) -> list[str]:
    """Give the values that no reply may tell."""
    keys = [value for name, value in settings.models.environment.items() if name.endswith(("_KEY", "_TOKEN"))]
    url = settings.database_url.get_secret_value() if settings.database_url is not None else ""
    return [*keys, *([url] if url else [])]
