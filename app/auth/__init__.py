"""Who calls, and what they may do. Used by the door alone: nothing behind it looks at a key."""
