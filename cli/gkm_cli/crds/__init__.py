"""`gkm crds`: print the kinds of this version, or apply them after a check that those of the cluster are GKM's."""
