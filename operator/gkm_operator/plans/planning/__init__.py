"""Decisions about runs: values in, values out. Must never call the API server."""
