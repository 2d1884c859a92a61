"""The files of a cache that name absolute paths, rewritten for the path at which a container mounts the cache.

Standard library, gkm.hoststate and gkm.mounts only. Content comes from images: nothing in it is trusted.
"""
