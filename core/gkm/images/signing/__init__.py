"""Sign images so that cosign and GKM verify the signatures. Only the command line signs."""
