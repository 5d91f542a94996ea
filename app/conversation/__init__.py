"""What of a conversation is told to a model: tool rounds, the window, and the form that strict providers take."""
