"""Model providers: dialects (bytes in, events out), one HTTP module, a registry, and providers that play a script."""
