"""Stage 2: owns an operation: its lease, its two transactions, stages 3 to 5 in order, and its end."""
