"""One series over its runs: levels, changepoints, and the verdict of its newest run."""
