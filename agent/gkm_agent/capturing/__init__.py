"""Make signed images of what pods compiled (docs/design/capture.md): inspect, pack, push, sign, attest, announce."""
