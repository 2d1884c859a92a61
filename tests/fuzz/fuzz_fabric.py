"""What programs print about a node's fabric, most of which was sent by whoever is at the other end of a cable."""

import gzip
import re

from gkm.api.fabrics import DEVICE_PATTERN, MAX_PORTS, MAX_SURVEY_BYTES
from gkm_agent.fabric import lldp, survey

OWN = ("02:00:00:00:00:99",)
_LONGEST = 255


def neighbours(data: bytes) -> None:
    """Links come once for each interface, in order, in plain words of bounded length; so do problems."""
    try:
        found = lldp.decode(data, lambda name: not name.startswith("br"), OWN)
    except lldp.NotUnderstood as error:
        _check(str(error), 300)
        return
    names = [link.interface for link in found.links]
    assert names == sorted(set(names))
    assert len(names) <= MAX_PORTS
    for link in found.links:
        assert re.fullmatch(DEVICE_PATTERN, link.interface, re.ASCII)
        assert not link.interface.startswith("br")
        assert link.neighbour.chassis_id
        assert link.neighbour.port_id
        assert link.neighbour.chassis_id.lower() not in OWN
        for text in (link.neighbour.chassis_id, link.neighbour.port_id, link.neighbour.system_name):
            _check(text, _LONGEST)
    assert len(found.problems) <= lldp.MAX_NEIGHBORS + MAX_PORTS + 1
    for problem in found.problems:
        _check(problem, 300)


def topology(data: bytes) -> None:
    """What is kept is what was printed but for its date, and the same fabric is kept as the same bytes."""
    try:
        packed = survey.pack(data)
    except survey.UnusableSurvey as error:
        _check(str(error), 300)
        return
    assert len(packed) <= MAX_SURVEY_BYTES
    kept = gzip.decompress(packed)
    assert len(kept) <= len(data)
    dates = [line for line in data.split(b"\n") if line.startswith(b"# Topology file: generated on ")]
    assert kept == data if not dates else kept.count(b"\n") >= data.count(b"\n") - 1
    assert survey.pack(b"# Topology file: generated on another day\n" + kept) == packed or dates[1:]


def _check(text: str, most: int) -> None:
    assert text.isprintable(), ascii(text)
    assert len(text) <= most, ascii(text)
