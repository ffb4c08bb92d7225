"""From the words for two sides to a comparison of their runs."""
