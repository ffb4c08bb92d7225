"""What the pages of the site show, derived from records and comparisons."""
