"""How pods get their caches: by the CSI driver, or by image volumes (docs/decisions/0050-image-volumes.md).

With `auto` the CSIDriver object decides: kubelet mounts no inline volume of a driver without one.
"""

from collections.abc import Callable, Iterator
from typing import Literal

from gkm.api.caches import Delivery
from gkm.api.installation import DRIVER
from gkm.kube.api import Api, ListSelector
from gkm.kube.reflector import Reflector
from gkm.kube.resources import CSI_DRIVERS, NamedObject

_DRIVERS = CSI_DRIVERS.of(NamedObject)


class ObservedDelivery:
    """How pods get their caches: the configured value or, for `auto`, the presence of the CSIDriver csi.gkm.io."""

    def __init__(
        self, api: Api, configured: Literal["csi", "image", "auto"], changed: Callable[[], None] = lambda: None
    ) -> None:
        self._configured = configured
        self._changed = changed
        self._drivers = Reflector(api, _DRIVERS, self._seen, selector=ListSelector(fields=f"metadata.name={DRIVER}"))

    @property
    def kind(self) -> Delivery | None:
        """Return how pods get their caches now; None while `auto` has not listed CSIDrivers yet."""
        if self._configured != "auto":
            return self._configured
        if not self._drivers.synced.is_set():
            return None
        return "csi" if self._drivers.get(DRIVER) is not None else "image"

    def watches(self) -> Iterator[Reflector[NamedObject]]:
        """Yield the watch of CSIDrivers if the configured delivery is auto."""
        if self._configured == "auto":
            yield self._drivers

    def _seen(self, old: NamedObject | None, new: NamedObject | None) -> None:
        if (old is None) != (new is None):
            self._changed()
