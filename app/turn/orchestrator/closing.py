"""The last words on how a turn did: its outcome, where outcomes are counted, and the end of its life on the stream."""

from app.domain.chunks import StreamChunk
from app.domain.outcomes import Ended, outcome_of, scope_key
from app.turn.delivery import emitter
from app.turn.orchestrator.operation import Operation


def done(operation: Operation, ended: Ended) -> tuple[StreamChunk, ...]:
    """Give the chunks of an operation that ends well; a degraded one has recovered."""
    now = operation.services.clock.now()
    recovered = (emitter.lifecycle("recovered", "ok", now),) if operation.degraded else ()
    return (*_outcome(operation, ended), *recovered, emitter.lifecycle("completed", "ok", now))


def failed(operation: Operation, code: str) -> tuple[StreamChunk, ...]:
    """Give the chunks of an operation that fails."""
    errored = emitter.lifecycle("errored", "error", operation.services.clock.now(), {"code": code})
    return (*_outcome(operation, Ended(None, failed=True)), errored)


def _outcome(operation: Operation, ended: Ended) -> tuple[StreamChunk, ...]:
    outcomes = operation.services.aids.outcomes
    if outcomes is None:
        return ()
    persona = operation.persona.id if operation.persona is not None else None
    key = scope_key(outcomes.policy.scope, operation.caller.organization_id, persona)
    found = outcome_of(ended, operation.flags)
    kpi, alert = outcomes.note(key, found)
    told = {"task_outcome": found.to_json(), "task_outcome_kpi": kpi.to_json(), "task_outcome_alert": alert}
    return (emitter.metadata_update(told),)
