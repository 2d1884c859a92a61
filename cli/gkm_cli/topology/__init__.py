"""`gkm topology`: the tree of domains, from lists of nodes or a cluster, and what networks report.

gkm.topology decides; this package reads, prints and draws. It never writes to a cluster. The program imports only
`commands` and `options` at its start, and with lists it never imports the Kubernetes client.
"""
