"""Labels and annotations of the cache objects that the controllers make of captures."""

from typing import Final

PREFIX: Final = "gkm.io/captured-"
RUNTIME, VERSION, BACKEND, ARCH, DRIVER = (
    f"{PREFIX}{name}" for name in ("runtime", "version", "backend", "arch", "driver")
)
NAMESPACE: Final = f"{PREFIX}namespace"
"""Label: the namespace whose pods compiled the files."""
HARDWARE, CONTENT, TIME = (f"{PREFIX}{name}" for name in ("hardware", "content", "time"))
"""Annotations: the hardware key, the digest of the content, and when the capture was made."""
EARLIER: Final = f"{PREFIX}earlier"
"""Annotation: the short digests of the contents that had a generation of the family before, the latest first. No watch
holds it: with 1.6 KiB, a cache would be too large for every node."""
READ_LABELS = (NAMESPACE, RUNTIME, ARCH)
READ_ANNOTATIONS = (HARDWARE, CONTENT, TIME)
