"""The metrics and the health of the agent, and the HTTP server that serves them."""
