"""Observed state: runs, plans, nodes and pods, and the capacity that is free. Must never write to the API server."""
