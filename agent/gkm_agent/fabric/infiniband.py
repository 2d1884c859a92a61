"""A decoder for one InfiniBand port, from the texts of its files in sysfs. Pure.

The formats are those of the kernel's drivers/infiniband. The decoder leaves out a garbled value and reports a problem,
but keeps the port: one valid GUID is enough to identify the end of a cable.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gkm.api.fabrics import InfiniBandPort
from gkm.gpus.values import printable

FILES_OF_PORT = ("link_layer", "gids/0", "lid", "state", "rate")
FILES_OF_DEVICE = ("node_guid",)

_GUID = re.compile(r"(?:[0-9a-f]{4}:){3}[0-9a-f]{4}", re.ASCII)
_GID = re.compile(r"(?:[0-9a-f]{4}:){7}[0-9a-f]{4}", re.ASCII)
_LID = re.compile(r"0x[0-9a-f]{1,4}", re.ASCII)
_STATE = re.compile(r"[0-9]: ([A-Z_]{1,32})", re.ASCII)
_RATE = re.compile(r"[0-9.]{1,8} Gb/sec(?: \([0-9]{1,2}X(?: [A-Z0-9]{1,8})?\))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PortReading:
    """A port, None for a port of another kind (RoCE is Ethernet), and the problems in its files."""

    port: InfiniBandPort | None
    problems: tuple[str, ...] = ()


def decode(device: str, number: int, texts: Mapping[str, str]) -> PortReading:
    """Return the port that these files describe; `texts` lacks the unreadable files."""
    layer = texts.get("link_layer", "").strip()
    where = f"{device} port {number}"
    if layer != "InfiniBand":
        known = layer == "Ethernet"
        return PortReading(None, () if known else (f"{where}: its link layer is {_printable(layer)}",))
    problems: list[str] = []

    def matching(name: str, form: re.Pattern[str]) -> str:
        text = texts.get(name, "").strip().lower() if name not in {"state", "rate"} else texts.get(name, "").strip()
        if form.fullmatch(text):
            return text
        problems.append(f"{where}: {name} is {_printable(text)}")
        return ""

    node_guid, gid = matching("node_guid", _GUID), matching("gids/0", _GID)
    lid, state, rate = matching("lid", _LID), matching("state", _STATE), matching("rate", _RATE)
    port = InfiniBandPort(
        device=device,
        port=number,
        node_guid=_guid(node_guid),
        # A GID is a prefix of the subnet and the GUID of the port (InfiniBand Architecture, 4.1.1).
        port_guid=_guid(gid[20:]),
        lid=int(lid, 16) if lid else 0,
        state=state.partition(": ")[2],
        rate=rate,
    )
    return PortReading(port, tuple(problems))


def active(ports: list[InfiniBandPort]) -> str:
    """Return the number of active and of all ports as `active/all`, "" without a port."""
    return f"{sum(port.state == 'ACTIVE' for port in ports)}/{len(ports)}" if ports else ""


def _guid(text: str) -> str | None:
    """Return a GUID as ibnetdiscover writes it; None for a missing GUID and for zero, which an idle port shows."""
    found = text.replace(":", "")
    return found if found.strip("0") else None


def _printable(text: str) -> str:
    return repr(printable(text, 40)) if text else "missing or unreadable"
