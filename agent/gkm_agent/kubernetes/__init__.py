"""The source and the sinks of an agent in a cluster, over the Kubernetes API."""
