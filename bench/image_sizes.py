"""The sizes of our images beyond their base, in MB (10^6 bytes), of the layers as a node unpacks them."""

from support.product_images import build as product_images
from support.product_images import unpacked

MB = 1e6


def sizes() -> dict[str, float]:
    """Return agent_mb, csi_mb and operator_mb; builds the images if nobody has (root)."""
    archives = product_images.archives()
    return {f"{process}_mb": unpacked.beyond_base(path) / MB for process, path in archives.items()}
