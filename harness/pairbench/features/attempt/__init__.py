"""What `pairbench try` does: a quick look at what is edited just now, once or after every change of a file."""
