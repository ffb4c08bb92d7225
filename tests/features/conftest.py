"""The records and comparisons of the report's tests serve the words of features, too."""

from tests.report.conftest import baseline, change, comparison, ended, variant

__all__ = ["baseline", "change", "comparison", "ended", "variant"]
