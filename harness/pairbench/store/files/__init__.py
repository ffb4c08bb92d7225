"""Files of a store: which there are, and what one holds, read whole and checked before anything of it is believed."""
