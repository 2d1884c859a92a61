"""`gkm template`: render group templates offline, convert OSMO's templates, print the rights that they need.

gkm.templates decides and renders; this package reads files and prints. It never connects to a cluster.
"""
