"""Sign images so that cosign and GKM verify the signatures: for the command line, and for images of captures."""
