"""What the node publishes: status documents, their size limit and their objects."""
