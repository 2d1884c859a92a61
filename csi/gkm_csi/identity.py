"""The Identity service: who this driver is, and whether it can work here."""

from collections.abc import Sequence
from typing import Final

from google.protobuf.wrappers_pb2 import BoolValue

from gkm_csi.proto import csi_pb2 as csi
from gkm_csi.status_errors import Code, StatusError

DRIVER_NAME: Final = "csi.gkm.io"
VERSION: Final = "0.1.0"
"""The version of the distribution; importlib.metadata would cost 2 MiB to say the same, a test compares them."""


class IdentityService:
    """csi.v1.Identity; the methods are named as in the specification."""

    def __init__(self, missing: Sequence[str]) -> None:
        self._missing = tuple(missing)

    def GetPluginInfo(self, _: csi.GetPluginInfoRequest) -> csi.GetPluginInfoResponse:  # noqa: N802 -- name of the RPC
        """Return the name, which is that of the CSIDriver object, and the version."""
        return csi.GetPluginInfoResponse(name=DRIVER_NAME, vendor_version=VERSION)

    def GetPluginCapabilities(  # noqa: N802 -- name of the RPC
        self, _: csi.GetPluginCapabilitiesRequest
    ) -> csi.GetPluginCapabilitiesResponse:
        """Return no capability: there is no controller, no topology and no expansion."""
        return csi.GetPluginCapabilitiesResponse()

    def Probe(self, _: csi.ProbeRequest) -> csi.ProbeResponse:  # noqa: N802 -- name of the RPC
        """Return that we are ready.

        Raises:
            Refusal: something is missing on this machine (CSI, "Probe Errors": FAILED_PRECONDITION).
        """
        require_kernel_features(self._missing)
        return csi.ProbeResponse(ready=BoolValue(value=True))


def require_kernel_features(missing: Sequence[str]) -> None:
    """Refuse a call on a machine that cannot mount, with the reason.

    Raises:
        Refusal: something is missing.
    """
    if missing:
        raise StatusError(Code.FAILED_PRECONDITION, f"csi.gkm.io cannot mount on this node: {'; '.join(missing)}")
