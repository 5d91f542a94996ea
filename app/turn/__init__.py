"""The book: a turn passes five stages, in this order.

1. `facade`: the public operations; starts an operation, judges and publishes what it says.
2. `orchestrator`: owns the operation: its lease, its two transactions, stages 3 to 5, its end.
3. `preparation`: twelve phases turn an input into a `PreparedTurn`.
4. `gmi`: the model's steps and the tool rounds; yields GMI chunks, then one `GmiOutput`.
5. `delivery`: GMI chunks become stream chunks.

Between turns, `pauses` keeps what waits for a host.
"""
