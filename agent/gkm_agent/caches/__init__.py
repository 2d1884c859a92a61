"""The desired state of a node's caches, and the decisions about them, as pure functions."""
