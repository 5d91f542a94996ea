"""Postgres: tables, the two transactions of an operation, queries. SQL lives here and nowhere else."""
