"""`gkm cache`: build, push, sign, attest, verify, inspect, check, explain and extract images of kernel caches."""
