"""Many hosts, one store: Dask as a queue of units, and nothing else."""
