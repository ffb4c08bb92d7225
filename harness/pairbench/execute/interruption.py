"""The end of a run that its user asks for; in a file of its own, for every command knows it, and few run workers."""


class InterruptedRunError(Exception):
    """The user wants the run to end: no error of anybody's."""
