"""Whether an image is signed by whom the policies name: signatures found, read, judged.

May ask gkm.images.registries; must never look at content.
"""
