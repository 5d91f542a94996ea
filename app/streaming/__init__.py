"""The event log: frames are encoded once, kept in a ring while their operation runs, written in groups."""
