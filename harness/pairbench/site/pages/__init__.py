"""The static site: from values to the files of a folder that opens from disk."""
