"""The objects of an installation of GKM, and whether an object of the same name belongs to GKM. Pure.

The controllers report it (gkm_installed), and `gkm doctor` explains it; both read the objects as JSON of any shape.
"""

from collections.abc import Mapping
from typing import Any

NAMESPACE = "gkm-system"
CONFIG_MAP, CONFIG_KEY = "gkm-config", "config.yaml"
MOUNT = "/etc/gkm/"
"""The directory in which pods of GKM have the files of the ConfigMap."""
DRIVER = "csi.gkm.io"
ADMISSION_CA, ADMISSION_CA_KEY = "gkm-admission-ca", "ca.crt"
"""The name and the key of the ConfigMap in which the admission webhook publishes its certificate authorities."""

AGENT, CSI, CONTROLLERS, ADMISSION = "gkm-agent", "gkm-csi", "gkm-controllers", "gkm-admission"
PROVIDER = "gkm-provider"
"""The name in the labels of the pods of all topology providers."""

_NAME, _PART_OF = "app.kubernetes.io/name", "app.kubernetes.io/part-of"
_DRIVER_SETTINGS: Mapping[str, Any] = {
    "attachRequired": False,
    "podInfoOnMount": True,
    "fsGroupPolicy": "None",
    "requiresRepublish": False,
}
"""The fields of the CSIDriver on which the safety of mounts depends (deploy/base/csidriver.yaml has the reasons)."""


def driver_differences(found: Mapping[str, Any]) -> list[str]:
    """Return the fields in which a CSIDriver differs from the one that GKM ships."""
    spec = _mapping(found.get("spec"))
    differences = [
        f"{name} is {_text(spec.get(name))}, not {_text(wanted)}"
        for name, wanted in _DRIVER_SETTINGS.items()
        if spec.get(name, False) != wanted
    ]
    modes = spec.get("volumeLifecycleModes")
    if not isinstance(modes, list) or "Ephemeral" not in modes:
        differences.append(f"volumeLifecycleModes is {_text(modes)}, not [Ephemeral]")
    return differences


def is_our_daemon_set(found: Mapping[str, Any], name: str) -> bool:
    """Return whether a DaemonSet was shipped by GKM, by its labels; `name` is its name."""
    labels = _mapping(_mapping(found.get("metadata")).get("labels"))
    selector = _mapping(_mapping(_mapping(found.get("spec")).get("selector")).get("matchLabels"))
    return labels.get(_PART_OF) == "gkm" and selector.get(_NAME) == name


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return "not set" if value is None else str(value)
