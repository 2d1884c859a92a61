"""Turn the files that pods compiled into signed images: inspect, pack, push, sign, attest, announce."""
