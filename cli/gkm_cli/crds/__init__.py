"""`gkm crds`: print the kinds of this version, or apply them after a check that the cluster's kinds are GKM's."""
