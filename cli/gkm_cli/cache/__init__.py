"""`gkm cache`: images from caches, caches from images, and whether either can be trusted and used."""
