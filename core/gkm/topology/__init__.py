"""From what a cluster says of its nodes and pods to places and free GPUs; what contradicts itself is set aside by name.

May know gkm.api; must never read a file, a clock or the network, and never know what is planned with it.
"""
