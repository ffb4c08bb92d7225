"""One series over its runs: levels, changepoints, and what its newest run means."""
