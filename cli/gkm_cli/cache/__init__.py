"""`gkm cache`: build, push, sign, attest, verify, inspect, check and extract images of kernel caches."""
