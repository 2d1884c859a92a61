"""How this node is wired, and what is said of it: NVLink, InfiniBand, Ethernet, the labels of the Node.

Reads what drivers, the kernel and neighbours say, believes none of it unchecked, and writes only what is ours:
NodeFabric and the labels gkm.io/* and cache.gkm.io/* of our own Node. Must never touch a GPU: it reads the inventory.
"""
