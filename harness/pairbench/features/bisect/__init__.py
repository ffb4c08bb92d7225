"""Which commit moved a series: commits measured beside the good end until one is the culprit."""
