"""How often something can happen at most, from how often it was seen."""

from scipy import special


def upper_bound(seen: int, tries: int, *, confidence: float = 0.95) -> float:
    """Return the largest rate that the count does not contradict (Clopper and Pearson 1934, one-sided).

    Args:
        seen: times it happened.
        tries: times it could have; taken as independent.
        confidence: with which the true rate is below.
    """
    if not 0 <= seen <= tries:
        raise ValueError(f"seen {seen} times in {tries} tries, expected 0 to {tries}")
    if seen == tries:
        return 1.0
    return float(special.betaincinv(seen + 1, tries - seen, confidence))
