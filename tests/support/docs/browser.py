"""Headless Chromium: what a page looks like, pixel by pixel, and what it complains about."""

import re
import subprocess
import zlib
from collections import Counter
from pathlib import Path
from struct import unpack_from
from typing import NamedTuple

from support.host.waiting import scaled
from support.peers import require

SECONDS = scaled(120.0)
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {2: 3, 6: 4}
"""Bytes of a pixel by color type: RGB, RGBA (PNG, section 11.2.1)."""


class Shot(NamedTuple):
    """The colors of a screenshot, as `#rrggbb`, with their pixels; and the complaints in the console."""

    colors: Counter[str]
    console: list[str]


def shot(page: Path, width: int, height: int, directory: Path) -> Shot:
    """Return what Chromium shows of a file."""
    program = require.command("chromium", "chromium")
    image = directory / "shot.png"
    done = subprocess.run(
        [
            program,
            "--headless",
            "--no-sandbox",  # it runs as root in containers
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            "--enable-logging=stderr",
            f"--user-data-dir={directory / 'profile'}",
            f"--window-size={width},{height}",
            f"--screenshot={image}",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    console = re.findall(r"CONSOLE[^\]]*\] (.*)", done.stderr)
    return Shot(_colors(image.read_bytes()), console)


def _colors(png: bytes) -> Counter[str]:
    """Return the pixels of each color of a PNG with eight bits a channel and no interlacing."""
    assert png.startswith(_SIGNATURE)
    at, content = len(_SIGNATURE), b""
    width = height = channels = 0
    while at < len(png):
        length, kind = unpack_from(">I4s", png, at)
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlaced = unpack_from(">IIBBBBB", body)
            assert (depth, interlaced) == (8, 0)
            channels = _CHANNELS[color]
        content += body if kind == b"IDAT" else b""
        at += length + 12
    return _counted(zlib.decompress(content), width, height, channels)


def _counted(raw: bytes, width: int, height: int, channels: int) -> Counter[str]:
    stride, found = width * channels, Counter[str]()
    before = bytearray(stride)
    for row in range(height):
        start = row * (stride + 1)
        line = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), before, channels)
        found.update(line[at : at + 3].hex() for at in range(0, stride, channels))
        before = line
    return Counter({f"#{color}": count for color, count in found.items()})


def _unfiltered(kind: int, line: bytearray, above: bytearray, channels: int) -> bytearray:
    """Return a line without its filter (PNG, section 9.2)."""
    for at in range(len(line)):
        left = line[at - channels] if at >= channels else 0
        corner = above[at - channels] if at >= channels else 0
        up = above[at]
        if kind == 1:
            add = left
        elif kind == 2:
            add = up
        elif kind == 3:
            add = (left + up) // 2
        elif kind == 4:
            guess = left + up - corner
            add = min((left, up, corner), key=lambda one: abs(guess - one))
        else:
            return line
        line[at] = (line[at] + add) & 255
    return line
