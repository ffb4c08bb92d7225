"""Which commit changed a series: what probes have said so far, and which commit to probe next."""
