"""Several runs at once: which of them are admitted, where, and how far from the best that can be.

Functions of nodes and a queue, which read a clock only to end in time.
"""
