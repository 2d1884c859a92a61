"""A reader of sysfs: InfiniBand ports and network interfaces.

Drivers choose the names and contents, so the reader bounds counts and sizes. It follows links only beneath the root
(openat2, RESOLVE_BENEATH), because entries of /sys/class are links into /sys/devices.

A pure decoder reads one InfiniBand port from the texts of its files. The kernel's drivers/infiniband defines the
formats. The decoder leaves out a garbled value and reports a problem, but keeps the port: one valid GUID is enough to
identify the end of a cable.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gkm.api.fabrics import DEVICE_PATTERN, MAX_PORTS, InfiniBandPort
from gkm.gpus.values import printable
from gkm.mounts.safe_open import open_beneath

ROOT = Path("/sys")
MAX_TEXT = 4096
"""One page, the largest size of a sysfs attribute (Documentation/filesystems/sysfs.rst)."""
MAX_ENTRIES = 4096
MAX_PROBLEMS = 16
_NAME = re.compile(DEVICE_PATTERN, re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)
_LARGEST_PORT = 254
FILES_OF_PORT = ("link_layer", "gids/0", "lid", "state", "rate")
FILES_OF_DEVICE = ("node_guid",)
_GUID = re.compile(r"(?:[0-9a-f]{4}:){3}[0-9a-f]{4}", re.ASCII)
_GID = re.compile(r"(?:[0-9a-f]{4}:){7}[0-9a-f]{4}", re.ASCII)
_LID = re.compile(r"0x[0-9a-f]{1,4}", re.ASCII)
_STATE = re.compile(r"[0-9]: ([A-Z_]{1,32})", re.ASCII)
_RATE = re.compile(r"[0-9.]{1,8} Gb/sec(?: \([0-9]{1,2}X(?: [A-Z0-9]{1,8})?\))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ports:
    """The InfiniBand ports of a machine, sorted by name, and the problems of reading them."""

    ports: tuple[InfiniBandPort, ...] = ()
    problems: tuple[str, ...] = ()


def ports(root: Path = ROOT) -> Ports:
    """Return the InfiniBand ports of this machine, with problems in reading them.

    A machine without ports has no problem.
    """
    found: list[InfiniBandPort] = []
    problems: list[str] = []
    for device, number in _named(root, problems):
        if len(found) == MAX_PORTS:
            problems.append(f"more than {MAX_PORTS} InfiniBand ports: the rest is not read")
            break
        base = f"class/infiniband/{device}"
        paths = {name: f"{base}/{name}" for name in FILES_OF_DEVICE}
        paths |= {name: f"{base}/ports/{number}/{name}" for name in FILES_OF_PORT}
        texts = {name: text(root, path) for name, path in paths.items()}
        reading = decode(device, number, {name: read for name, read in texts.items() if read is not None})
        problems.extend(reading.problems)
        if reading.port is not None:
            found.append(reading.port)
    return Ports(tuple(found), tuple(problems[:MAX_PROBLEMS]))


def is_hardware(interface: str, root: Path) -> bool | None:
    """Return whether a network interface is a port of an adapter, not a virtual function, bridge, bond or loopback.

    A virtual function has `device/physfn` (PCI SR-IOV); a software interface has no `device`. None for an interface
    that this /sys does not have: that of a pod has the interfaces of the pod only.
    """
    base = f"class/net/{interface}"
    if not _NAME.fullmatch(interface) or not _is_directory(root, base):
        return None
    return _is_directory(root, f"{base}/device") and not _is_directory(root, f"{base}/device/physfn")


def has_hardware(root: Path) -> bool:
    """Return whether this /sys has any port of an adapter; that of a pod has none."""
    return any(is_hardware(name, root) for name in _names(root, "class/net"))


def addresses(root: Path) -> frozenset[str]:
    """Return the MAC addresses of this machine's interfaces, as `02:00:00:00:00:01`."""
    names = [name for name in _names(root, "class/net") if _NAME.fullmatch(name)]
    found = {(text(root, f"class/net/{name}/address") or "").strip().lower() for name in names}
    return frozenset(address for address in found if address.strip("0:"))


def text(root: Path, path: str) -> str | None:
    """Return the text of a file beneath `root`; None for a missing, unreadable or too large file, or a binary one."""
    try:
        with open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = os.read(descriptor, MAX_TEXT + 1)
    except OSError:
        return None
    try:
        return data.decode("ascii") if len(data) <= MAX_TEXT else None
    except UnicodeDecodeError:
        return None


def _named(root: Path, problems: list[str]) -> Iterator[tuple[str, int]]:
    """Yield each InfiniBand device with the numbers of its ports."""
    for device in _names(root, "class/infiniband"):
        if not _NAME.fullmatch(device):
            problems.append(f"an InfiniBand device is called {printable(device, 80)!r}: not read")
            continue
        numbers = [name for name in _names(root, f"class/infiniband/{device}/ports") if _NUMBER.fullmatch(name)]
        for number in sorted(map(int, numbers)):
            if number <= _LARGEST_PORT:
                yield device, number


def _names(root: Path, path: str) -> list[str]:
    """Return the first MAX_ENTRIES names in a directory beneath `root`, sorted; an empty list for a missing one."""
    try:
        with open_beneath(root, path, os.O_RDONLY | os.O_DIRECTORY) as descriptor, os.scandir(descriptor) as entries:
            return sorted(entry.name for _, entry in zip(range(MAX_ENTRIES), entries, strict=False))
    except OSError:
        return []


def _is_directory(root: Path, path: str) -> bool:
    try:
        with open_beneath(root, path, os.O_PATH | os.O_DIRECTORY):
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class PortReading:
    """One port and the problems in its files; the port is None if it is no InfiniBand port (RoCE is Ethernet)."""

    port: InfiniBandPort | None
    problems: tuple[str, ...] = ()


def decode(device: str, number: int, texts: Mapping[str, str]) -> PortReading:
    """Return the port that the texts of its sysfs files describe; `texts` lacks the unreadable files."""
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
    """Return the numbers of active and of all ports as `active/all`, "" without a port."""
    return f"{sum(port.state == 'ACTIVE' for port in ports)}/{len(ports)}" if ports else ""


def _guid(text: str) -> str | None:
    """Return a GUID as ibnetdiscover writes it; None for a missing GUID and for zero, which an idle port shows."""
    found = text.replace(":", "")
    return found if found.strip("0") else None


def _printable(text: str) -> str:
    return repr(printable(text, 40)) if text else "missing or unreadable"
