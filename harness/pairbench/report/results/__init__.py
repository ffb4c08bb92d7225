"""The page of results as Markdown, a terminal's text, or JSON."""
