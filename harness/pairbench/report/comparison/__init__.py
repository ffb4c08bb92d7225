"""A comparison as a table, Markdown, JSON or annotations."""
