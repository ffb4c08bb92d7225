"""Charts: what they show, prepared once, and drawn with matplotlib."""
