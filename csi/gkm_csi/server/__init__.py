"""gRPC on kubelet's sockets: transport, the services of CSI and of kubelet's plugin registration, and liveness.

Knows the messages of the protocol and calls gkm_csi.volumes; the only place where an error becomes a gRPC status.
"""
