"""`gkm exec`: a cache for one program on a machine without a cluster.

Every step can be killed: what it leaves is either complete or removed by the next run. Locks belong to processes,
mounts to a namespace that ends with the program.
"""
