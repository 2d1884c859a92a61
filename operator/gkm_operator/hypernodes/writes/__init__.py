"""Write HyperNodes, Topologies and topology labels of Nodes; no other code does. Must never decide what the tree is."""
