"""Suite files: found by path, loaded under names that no other file has, or read as text."""
