"""Choose the nodes of every pod and spare, given how many groups each domain takes."""
