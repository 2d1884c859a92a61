"""`gkm plan`: plan runs offline, from lists of nodes and pods.

gkm.topology and gkm.packing decide; this package reads files and prints. It never connects to a cluster. The program
imports only `command` and `options` at its start, because the other modules import numpy.
"""
