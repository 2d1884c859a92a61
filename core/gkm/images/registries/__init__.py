"""Read from registries over HTTP, and write to them, within the bounds and hosts that the configuration allows.

May know gkm.images' values (references, manifests, local images); must never look into a signature or an archive.
"""
