"""The store on the node's disk: pointers, catalog, budget, eviction and integrity."""
