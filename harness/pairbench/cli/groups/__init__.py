"""Verbs of two words: one file for each first word."""
