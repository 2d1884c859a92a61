"""The status that this node publishes: how it is computed, limited in size and brought to its sink."""
