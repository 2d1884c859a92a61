"""The fabric of this node: NVLink, InfiniBand and Ethernet, NodeFabric and the labels of the Node.

The package reads drivers, the kernel and neighbors, and checks everything that it reads. It writes only its own
objects: NodeFabric, and the labels gkm.io/* and cache.gkm.io/* of the node's own Node. It never touches a GPU: it reads
the inventory.
"""
