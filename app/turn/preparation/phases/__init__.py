"""The phases. They are strangers to each other: what one leaves for another is in the draft."""
