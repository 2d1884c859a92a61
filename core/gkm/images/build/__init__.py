"""From a cache directory to an image as MCV writes them, byte for byte where it says what is inside.

May know gkm.images' values and its reading of archives; must never talk to a registry or ask this machine for GPUs.
Everything in the directory was written by other programs, and is hostile until typed and bounded.
"""
