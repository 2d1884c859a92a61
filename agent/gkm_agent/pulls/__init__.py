"""Images on their way to the node: queue, workers, retries and progress."""
