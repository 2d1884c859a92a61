"""The Registration service: kubelet finds our socket in its plugins_registry and asks who we are.

In this process instead of a sidecar (node-driver-registrar): registered means alive. Newer kubelets ask every 10 s and
drop a driver that does not answer, so nothing here may wait for anything.
"""

import logging
from dataclasses import dataclass

from gkm.hoststate.logs import fields

from gkm_csi.identity import DRIVER_NAME
from gkm_csi.proto import registration_pb2 as registration

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RegistrationService:
    """pluginregistration.Registration; `endpoint` is the path of the CSI socket as kubelet sees it."""

    endpoint: str

    def GetInfo(self, _: registration.InfoRequest) -> registration.PluginInfo:  # noqa: N802 -- name of the RPC
        """Return name, kind and socket; 1.0.0 stands for all of CSI 1.x."""
        return registration.PluginInfo(
            type="CSIPlugin", name=DRIVER_NAME, endpoint=self.endpoint, supported_versions=["1.0.0"]
        )

    def NotifyRegistrationStatus(  # noqa: N802 -- name of the RPC
        self, status: registration.RegistrationStatus
    ) -> registration.RegistrationStatusResponse:
        """Note what kubelet says; it tries again by itself when it could not register us."""
        if status.plugin_registered:
            log.info("registered with kubelet", extra=fields(driver=DRIVER_NAME, endpoint=self.endpoint))
        else:
            log.error("kubelet did not register the driver", extra=fields(driver=DRIVER_NAME, reason=status.error))
        return registration.RegistrationStatusResponse()
