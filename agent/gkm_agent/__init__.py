"""The agent: makes this node's caches real and says the truth about them.

May import all of gkm; must never import another process's package.
"""
