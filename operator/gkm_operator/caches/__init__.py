"""The controller of caches: verifies their images, counts the reports of nodes, and writes their status."""
