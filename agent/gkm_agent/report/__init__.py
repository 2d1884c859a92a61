"""Compute the status that this node publishes, limit its size, and write it to a sink."""
