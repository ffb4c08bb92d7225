"""The markers of collected pairs."""

MARKERS = {
    "baseline": "a pair's plain implementation",
    "variant": "a pair's optimised implementation",
    "edge": "a case that is verified and never timed",
    "smoke": "a small case, for any machine",
    "real": "a case with shapes of real models",
    "headline": "a case behind a published claim",
    "gpu": "needs a GPU",
}
