"""Every error that pairbench raises on purpose. A message names the thing, what is wrong with it, what was expected and what to do."""


class PairbenchError(Exception):
    """Base of all these errors, by itself for a harness that failed."""

    exit_code = 4


class UsageError(PairbenchError):
    """Something that the user gave is wrong."""

    exit_code = 2


class DeclarationError(UsageError, ValueError):
    """A declaration is incomplete or contradicts itself."""


class SuiteError(UsageError):
    """A suite file cannot be found or loaded."""


class SelectionError(UsageError):
    """A SELECT argument selects nothing."""


class ConfigError(UsageError):
    """A setting is unknown or has a wrong value."""


class StoreError(UsageError):
    """A store, a run or a file in it is not there, or is none."""


class EmptyStoreError(StoreError):
    """A store holds no run, or there is no such store."""


class StoreFailedError(PairbenchError):
    """A store that exists cannot be listed, read or written to: a network, a disk or a permission fails, and no name is wrong."""


class IncompleteRunError(PairbenchError):
    """A run that was started from Python ended before its end, or not all of it is in the store."""

    def __init__(self, message: str, result: object = None) -> None:
        super().__init__(message)
        self.result = result
        """The `Result` with everything that was measured until then; of `ab` the `Verdicts`."""


class InterruptedRunError(Exception):
    """The user interrupted the run. It is no failure of the harness or of a suite."""
