"""The services by which kubelet knows this driver: csi.v1.Identity, and pluginregistration.Registration.

Kubelet finds the registration socket in its plugins_registry directory and calls GetInfo. This process registers
itself instead of a sidecar (node-driver-registrar), so a registered driver is a running one. Newer kubelets call every
10 s and drop a driver that does not answer, so no method here waits.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gkm.hoststate.logs import fields
from google.protobuf.wrappers_pb2 import BoolValue

from gkm_csi.proto import csi_pb2 as csi
from gkm_csi.proto import registration_pb2 as registration
from gkm_csi.status_errors import failed_precondition

_LOG = logging.getLogger(__name__)

DRIVER_NAME: Final = "csi.gkm.io"
VERSION: Final = "0.1.0"
"""The version of the distribution; importlib.metadata would cost 2 MiB to read it, a test compares the two."""


class IdentityService:
    """csi.v1.Identity; the methods have the names of the specification."""

    def __init__(self, missing: Sequence[str]) -> None:
        self._missing = tuple(missing)

    def GetPluginInfo(self, _: csi.GetPluginInfoRequest) -> csi.GetPluginInfoResponse:  # noqa: N802 -- name of the RPC
        """Return the name of the CSIDriver object, and the version."""
        return csi.GetPluginInfoResponse(name=DRIVER_NAME, vendor_version=VERSION)

    def GetPluginCapabilities(  # noqa: N802 -- name of the RPC
        self, _: csi.GetPluginCapabilitiesRequest
    ) -> csi.GetPluginCapabilitiesResponse:
        """Return no capability: this driver has no controller, no topology and no expansion."""
        return csi.GetPluginCapabilitiesResponse()

    def Probe(self, _: csi.ProbeRequest) -> csi.ProbeResponse:  # noqa: N802 -- name of the RPC
        """Return that the driver is ready.

        Raises:
            StatusError: this machine lacks a kernel feature (CSI, "Probe Errors": FAILED_PRECONDITION).
        """
        require_kernel_features(self._missing)
        return csi.ProbeResponse(ready=BoolValue(value=True))


def require_kernel_features(missing: Sequence[str]) -> None:
    """Refuse a call on a machine that cannot mount.

    Raises:
        StatusError: `missing` names a kernel feature.
    """
    if missing:
        raise failed_precondition(f"csi.gkm.io cannot mount on this node: {'; '.join(missing)}")


@dataclass(frozen=True, slots=True)
class RegistrationService:
    """pluginregistration.Registration; `endpoint` is the path of the CSI socket in kubelet's mount namespace."""

    endpoint: str

    def GetInfo(self, _: registration.InfoRequest) -> registration.PluginInfo:  # noqa: N802 -- name of the RPC
        """Return name, type and socket; version 1.0.0 stands for all of CSI 1.x."""
        return registration.PluginInfo(
            type="CSIPlugin", name=DRIVER_NAME, endpoint=self.endpoint, supported_versions=["1.0.0"]
        )

    def NotifyRegistrationStatus(  # noqa: N802 -- name of the RPC
        self, status: registration.RegistrationStatus
    ) -> registration.RegistrationStatusResponse:
        """Log the result of the registration; kubelet repeats a registration that failed."""
        if status.plugin_registered:
            _LOG.info("registered with kubelet", extra=fields(driver=DRIVER_NAME, endpoint=self.endpoint))
        else:
            _LOG.error("registration with kubelet failed", extra=fields(driver=DRIVER_NAME, reason=status.error))
        return registration.RegistrationStatusResponse()
