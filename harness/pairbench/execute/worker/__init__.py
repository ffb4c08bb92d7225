"""The child's side: everything that runs in a worker process. The only room that imports torch."""
