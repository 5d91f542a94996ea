"""The door: HTTP in, facade calls out. Authentication, limits, problem documents and SSE live here alone."""
