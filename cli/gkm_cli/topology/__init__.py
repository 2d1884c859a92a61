"""`gkm topology`: the tree of domains, offline, from lists of nodes and what networks report.

gkm.topology decides; this package reads files, prints and draws. It never connects to a cluster. The program imports
only `commands` and `options` at its start.
"""
