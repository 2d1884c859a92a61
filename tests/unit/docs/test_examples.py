"""Examples for machines without a cluster: flags and paths are real. tests/partners/docs has systemd and shellcheck."""

import shlex
from pathlib import Path

from gkm_agent import options

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
UNIT = EXAMPLES / "systemd" / "gkm-agent.service"


def directives() -> list[tuple[str, str]]:
    lines = UNIT.read_text().splitlines()
    return [(name, value) for name, found, value in (line.partition("=") for line in lines) if found and name[0] != "#"]


def test_the_flags_of_the_unit_are_those_of_the_agent() -> None:
    (command,) = (value for name, value in directives() if name == "ExecStart")
    parsed = options.parse(shlex.split(command)[1:], {})
    assert parsed.static == Path("/etc/gkm/caches")
    assert parsed.layout.state == Path("/var/lib/gkm")
    assert parsed.layout.run == Path("/run/gkm")


def test_the_unit_may_write_only_directories_of_its_own_and_has_no_capability() -> None:
    own = dict(directives())
    assert (own["StateDirectory"], own["RuntimeDirectory"], own["ProtectSystem"]) == ("gkm", "gkm", "strict")
    assert own["CapabilityBoundingSet"] == ""
    assert "ReadWritePaths" not in own
