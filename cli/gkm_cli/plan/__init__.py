"""`gkm plan`: plan runs, from lists of nodes and pods or from a cluster, which it only reads.

gkm.topology and gkm.packing decide; this package reads and prints. The program imports only `command` and `options` at
its start, because the other modules import numpy, and those that read a cluster the Kubernetes client.
"""
