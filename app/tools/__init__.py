"""Runtime tools: what the runtime can run itself, and how a call is run."""
