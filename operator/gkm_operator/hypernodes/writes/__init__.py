"""The only code that writes HyperNodes, Topologies and labels of levels. Must never decide what the tree is."""
