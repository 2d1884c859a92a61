"""Source and sinks of an agent without a cluster: manifests and files."""
