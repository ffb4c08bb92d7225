"""Verbs that go over the commits of a history."""
