"""`pairbench`: optimised PyTorch operators beside the plain ones they replace: verified, timed together, tracked."""

from pairbench.model.case import grid
from pairbench.model.claim import Claim
from pairbench.model.operator import Cost, Operator, Variant
from pairbench.model.tolerance import EXACT, REASSOCIATED, REASSOCIATED_BY_ROW, Tolerance

__all__ = ["EXACT", "REASSOCIATED", "REASSOCIATED_BY_ROW", "Claim", "Cost", "Operator", "Tolerance", "Variant", "grid"]
__version__ = "0.1.0"
