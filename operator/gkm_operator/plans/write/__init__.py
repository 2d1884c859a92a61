"""Plans, statuses and events as they are written to the API server."""
