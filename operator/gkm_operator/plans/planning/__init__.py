"""Decide about runs with pure functions. Must never call the API server."""
