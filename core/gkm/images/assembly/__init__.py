"""Build an image from a cache directory, byte for byte as MCV does wherever MCV describes the content.

May know gkm.images' values and its archive reader; must never talk to a registry or query this machine's GPUs. Other
programs wrote every file in the directory, so each is hostile until it is typed and bounded.
"""
