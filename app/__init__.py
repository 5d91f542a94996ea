"""Fermata: an agent-runtime service whose pauses hold.

`turn` is the book: the five stages in the order in which a turn passes them. Every other package is the library that
the book uses. Start reading at `app.turn`.
"""
