"""Runs the benchmark and writes its table: `python -m tests.bench [measure …]`."""

import asyncio
import json
import resource
import sys
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from tests.bench.client import cancelling, client
from tests.bench.closed import closed
from tests.bench.growth import replicas, wal
from tests.bench.measures import MEASURES, Bench, Row
from tests.bench.processes import fermata, model, postgres, relay
from tests.bench.stages import cold, stages

RESULTS = Path(__file__).parent / "results"
ALL = (cold, stages, client, cancelling, closed, *MEASURES, wal, replicas)


async def run(names: list[str]) -> list[Row]:
    """Run the named measures, or all."""
    chosen = [measure for measure in ALL if not names or measure.__name__ in names]
    rows: list[Row] = []
    async with postgres() as database, model() as models, relay(models) as limit:
        async with fermata(models, database) as first:
            rows.append(Row("first start to ready, with migrations", first.ready_seconds, "s", "-"))
        async with fermata(models, database) as server:
            rows.append(Row("start to ready", server.ready_seconds, "s", "<= 1.5 s"))
            bench = Bench(server, limit, models, database)
            await asyncio.gather(*(bench.turn("bench-50-0") for _ in range(32)))
            for measure in chosen:
                found = await measure(bench)
                rows += found
                for row in found:
                    sys.stdout.write(
                        f"{row.name}: {row.figure:,.2f} {row.unit} (to reach {row.to_reach}) {row.details}\n"
                    )
                    sys.stdout.flush()
    return rows


def write(rows: list[Row]) -> None:
    """Write the table as JSON and as Markdown; what was not measured this time stays as it was."""
    RESULTS.mkdir(exist_ok=True)
    file, today = RESULTS / "results.json", f"{datetime.now(UTC):%Y-%m-%d}"
    known = {entry["name"]: entry for entry in json.loads(file.read_text())} if file.exists() else {}
    for row in rows:
        shown = {"name": row.name, "figure": row.figure, "unit": row.unit, "to_reach": row.to_reach}
        known[row.name] = {**shown, "measured": today, **row.details}
    file.write_text(json.dumps(list(known.values()), indent=2) + "\n", encoding="utf-8")
    lines = ["| measure | figure | to reach | measured |", "|---|---|---|---|"]
    lines += [
        f"| {each['name']} | {each['figure']:,.2f} {each['unit']} | {each['to_reach']} | {each.get('measured', '')} |"
        for each in known.values()
    ]
    (RESULTS / "results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    write(uvloop.run(run(sys.argv[1:])))
