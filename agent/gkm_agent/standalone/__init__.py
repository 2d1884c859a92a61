"""The source and the sinks of an agent without a cluster: manifests and files."""
