"""The store on the node's disk: pointers, entries and their catalog, disk budget, eviction and integrity."""
