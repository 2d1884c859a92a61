"""Source and sinks of an agent on a Kubernetes node: the API server."""
