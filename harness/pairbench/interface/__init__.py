"""The Python interface: what a verb of the command line does, called from a notebook or a script; a thin face of `workflow`."""
