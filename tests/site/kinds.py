"""The kinds of pages that a site has, and one of each."""

from pairbench.site import paths
from tests.breakdowns_made import kept
from tests.builders import DEVICE, SUITE, run_id_of
from tests.site.stores import RUNS

OPERATOR = paths.operator_page(DEVICE, SUITE, "rms_norm")
NEWEST = run_id_of(24 * (RUNS - 1))
EVENTFUL = {
    "overview": paths.OVERVIEW,
    "operator": OPERATOR,
    "regressions": paths.REGRESSIONS,
    "compare": paths.COMPARE,
    "runs": paths.RUNS,
    "breakdowns": paths.BREAKDOWNS,
    "breakdown": paths.breakdown_page(kept().breakdown_id, DEVICE),
    "run": paths.run_page(NEWEST, DEVICE),
}
"""Kind -> its page in the eventful site."""
ALWAYS = (paths.OVERVIEW, paths.REGRESSIONS, paths.COMPARE, paths.RUNS)
"""Pages that every site has."""
