"""`gkm cache`: build, push, sign, verify, inspect, check and extract images of kernel caches."""
