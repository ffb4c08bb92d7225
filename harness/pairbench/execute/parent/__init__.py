"""The parent's side of worker processes. Never imports torch."""
