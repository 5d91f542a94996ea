"""Guardrails: what may come in and what may go out, asked in one place for turns, continuations and resumes."""
