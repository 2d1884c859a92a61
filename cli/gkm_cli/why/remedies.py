"""What to do about a reason of a cache: the short form of docs/reference/reasons.md."""

from gkm.api.errors import Reason

_REBUILD = "build the cache for these GPUs, or choose other nodes with spec.nodeSelector"
_SPELLING = "correct spec.image, or push the image"
_SUSPICIOUS = "check registry, mirrors and proxies; build and push the image again"
_REMEDIES = {
    Reason.SIGNATURE_MISSING: "sign the image with gkm cache sign, or add a policy that covers it to gkm-config",
    Reason.SIGNATURE_INVALID: "gkm cache verify says why each signature does not count; sign with the right key",
    Reason.IDENTITY_MISMATCH: "add the identity to the policy in gkm-config if it may sign; else do not use the image",
    Reason.ATTESTATION_MISSING: "gkm cache verify says what each attestation lacks; add one with gkm cache attest",
    Reason.REGISTRY_UNAVAILABLE: "check the registry, its certificate and registries.hosts in gkm-config; GKM retries",
    Reason.UNAUTHORIZED: "name a pull secret in spec.imagePullSecrets, opened to GKM (deploy/samples/pull-secret.yaml)",
    Reason.NOT_FOUND: _SPELLING,
    Reason.INVALID_REFERENCE: _SPELLING,
    Reason.NOT_ALLOWED: "ask an administrator to allow the registry in registries.allow or registries.hosts",
    Reason.BACKEND_MISMATCH: _REBUILD,
    Reason.ARCHITECTURE_MISMATCH: _REBUILD,
    Reason.WARP_SIZE_MISMATCH: "build the image again: its labels are probably wrong",
    Reason.DRIVER_TOO_OLD: "upgrade the GPU driver of the node, or build the cache with an older CUDA",
    Reason.PTX_TOO_NEW: "upgrade the GPU driver of the node, or build the cache with an older CUDA",
    Reason.METADATA_MISSING: "check that the image is a cache: build it with gkm cache build",
    Reason.METADATA_INVALID: "build the image again: the message names the label",
    Reason.NO_GPU: "correct spec.nodeSelector, or check the GPU driver of the node",
    Reason.GPU_LOST: "look at dmesg and nvidia-smi on the node; reset the GPU, or drain the node",
    Reason.DIGEST_MISMATCH: _SUSPICIOUS,
    Reason.CONTENT_MISMATCH: _SUSPICIOUS,
    Reason.TOO_LARGE: "raise store.maxImageBytes in gkm-config if the image is intended",
    Reason.UNSAFE_CONTENT: "do not use the image; its builder must explain it",
    Reason.DISK_FULL: "free space on the node, delete caches, or raise store.maxBytes in gkm-config; GKM retries",
    Reason.NODE_ERROR: "read the message, and the log of gkm-agent on the node; GKM retries",
}
_OTHER = "docs/reference/reasons.md explains this reason"


def remedy(reason: str) -> str:
    """Return what to do about a reason; for an unknown one, where to read about it."""
    return _REMEDIES.get(Reason(reason), _OTHER) if reason in set(Reason) else _OTHER
