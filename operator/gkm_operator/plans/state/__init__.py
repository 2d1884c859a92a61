"""The watched state: runs, plans, nodes and pods, and the free capacity. Must never write to the API server."""
