"""Rules of ComputeDomains that admission and the controller share: who is enrolled, in which domain, by which claim.

Pure: values in, values out. Must never send a request.
"""
