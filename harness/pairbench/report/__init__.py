"""Values to text: terminal tables, Markdown and JSON. Knows no store and measures nothing."""
