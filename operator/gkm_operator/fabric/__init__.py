"""Fabric conditions: what NodeFabrics say about the NVLink fabric of nodes, as a condition of each Node.

Must never read GPUs: the agents decide the health of a node.
"""
