"""Parse what switches and adapters report about a network, group its leaf switches, and return HyperNodes.

May import gkm.api and the values of gkm.topology; must never read a file, a clock or the network. No message holds
content of a source: messages name the kind of fault, a position and a count.
"""
