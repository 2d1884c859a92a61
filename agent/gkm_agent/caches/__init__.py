"""What a node's caches should become: desired state, conditions and decisions as pure functions."""
