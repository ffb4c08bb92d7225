"""The work of one call, added up by module, kind and kernel."""
