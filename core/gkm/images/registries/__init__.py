"""Registries over HTTP: which are asked, as whom, within what bounds, and storing in them.

May know gkm.images' values (references, manifests, packed images); must never look into a signature or an archive.
"""
