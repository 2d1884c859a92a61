"""What must exist before the controllers start: checks of the cluster and its CRDs."""
