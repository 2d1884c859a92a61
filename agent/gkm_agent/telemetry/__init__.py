"""Metrics and health of the agent, and the server that exposes them."""
