"""From how many groups each domain takes to the nodes of every pod and spare."""
