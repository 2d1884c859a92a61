"""The reconcile loop: observe the node, decide per cache, apply."""
