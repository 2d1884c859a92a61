"""The tree of domains in the forms that schedulers read: HyperNodes, Topologies and labels of Nodes. Pure."""
