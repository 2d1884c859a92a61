"""`gkm plan`: where a run's groups would go, offline, from lists of nodes and pods.

Nothing here decides: gkm.topology and gkm.packing do. What is read comes from files alone, and no cluster is asked.
Only `command` may be imported by the program at its start: the rest brings numpy.
"""
