"""Tools that come with the runtime."""
