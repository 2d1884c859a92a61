"""Observed state that plans depend on: runs, plans, nodes and pods."""
