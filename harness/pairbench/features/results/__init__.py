"""The newest measurements of each operator, put in order for a page of results."""
