"""Networks that switches and adapters report, as HyperNodes: parsers of foreign text, and the one rule of leaf groups.

May import gkm.api and the values of gkm.topology; must never read a file, a clock or the network. No message holds
content of a source: messages name the kind of fault, a position and a count.
"""
