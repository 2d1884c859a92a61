"""The rows of the hostile suite through `gkm cache extract`: one readable line, and no directory."""

import base64
import json
import re
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
from gkm.api.config import Verification
from gkm.api.errors import Reason
from gkm.images.registries import hosts
from gkm_cli import main
from support.images.archives import tree
from support.images.hostile import MAX_BYTES, ROWS, Row
from support.images.hostile_scene import GOOD, LIMITS, SECRET, USER, Scene, scene

FAILED, NO = 1, 3
REFUTED = {Reason.SIGNATURE_MISSING, Reason.SIGNATURE_INVALID, Reason.IDENTITY_MISMATCH}
"""What the registry said was enough to say no; everything else is no answer."""


def extracted(site: Scene, directory: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int | str | None:
    """Run the command in this process; return its exit code."""
    configured = {
        "store": {"maxImageBytes": MAX_BYTES},
        "verification": msgspec.to_builtins(Verification(policies=[site.policy])),
    }
    (directory / "config.json").write_text(json.dumps(configured))
    login = {"auth": base64.b64encode(f"{USER}:{SECRET}".encode()).decode()}
    (directory / "auth.json").write_text(json.dumps({"auths": {site.real.host: login, site.other.host: login}}))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(directory / "auth.json"))
    # The command waits as long as the agent does; a test waits less.
    monkeypatch.setattr(hosts, "TransportLimits", lambda: LIMITS)
    access = ["--ca-file", str(site.real.ca_file)] if site.real.ca_file else ["--plain-http"]
    command = ["gkm", "cache", "extract", str(site.ref), "--to", str(directory / "out" / "cache"), *access, *more]
    monkeypatch.setattr(sys, "argv", [*command, "--config", str(directory / "config.json")])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return ended.value.code


def test_an_honest_image_is_extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(tmp_path) as site:
        site.put(GOOD)
        assert extracted(site, tmp_path, monkeypatch) == 0
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["cache", "K", "a.cubin"]


_PROGRESS = re.compile(r"^Downloading: \d+ % of [0-9.]+ MiB\n", re.MULTILINE)
"""Each 5 seconds of a download without a terminal has such a line."""


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_hostile_image_gives_one_line_and_no_directory(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in row.bounds.items():
        module, _, bound = name.rpartition(".")
        monkeypatch.setattr(import_module(f"gkm.images.{module}"), bound, value)
    with scene(tmp_path, tls=row.tls) as site:
        row.setup(site)
        code = extracted(site, tmp_path, monkeypatch)
        assert not site.gave_away()
    told = capsys.readouterr()
    wanted = NO if row.reason in REFUTED else FAILED
    errors = _PROGRESS.sub("", told.err)
    line = told.out if wanted == NO else errors
    assert line.startswith("not verified: " if wanted == NO else "error: "), told
    assert (code, line.count("\n"), told.out + errors) == (wanted, 1, line)
    assert row.message in line
    assert line.rstrip("\n").isprintable()
    assert SECRET not in line
    assert not list((tmp_path / "out").rglob("*"))


@pytest.mark.parametrize("path", ["/etc/passwd", "../../../etc/passwd", "/cache/K/../../etc/passwd", "K/a.cubin\0"])
@pytest.mark.parametrize("more", [{}, {"passwd": "/etc/passwd"}, {"../K/a.cubin": "/cache/K/a.cubin"}])
def test_relocation_replaces_every_path_in_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, more: dict[str, str]
) -> None:
    group = json.dumps({"child_paths": {"a.cubin": path} | more}).encode()
    with scene(tmp_path) as site:
        site.put(tree(("io.triton.cache/K/a.cubin", b"x"), ("io.triton.cache/K/__grp__a.json", group)))
        assert extracted(site, tmp_path, monkeypatch, "--mount-path", "/mnt/cache") == 0
    written = json.loads((tmp_path / "out" / "cache" / "K" / "__grp__a.json").read_text())
    # A group with a child outside its directory is invalid: Triton compiles again.
    assert written == ({} if more else {"child_paths": {"a.cubin": "/mnt/cache/K/a.cubin"}})
