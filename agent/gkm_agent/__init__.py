"""The agent: pulls the caches of this node, and publishes the state of the node.

It may import all of gkm; it must never import the package of another process.
"""
