"""Model providers: dialects (bytes in, events out), one HTTP module, a registry, and the scripted provider that ships."""
