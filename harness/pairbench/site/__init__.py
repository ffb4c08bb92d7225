"""A site: gathered from a store, published into a folder, served."""
