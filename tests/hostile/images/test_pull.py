"""Every row of the hostile suite through the whole pull: resolve, verify, describe, fetch."""

import hashlib
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest
from gkm.api.config import Verification
from gkm.api.errors import TRANSIENT, GKMError
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.pulling import pull
from gkm.images.pulling.entry import StoreEntry
from gkm.images.signatures.verify import Verifier
from support.host.memory import traced_below
from support.images.hostile import CVES, MAX_BYTES, ROWS, Row
from support.images.hostile_scene import GOOD, SECRET, Scene, scene

MAX_MEMORY = 24 << 20
"""Of what one pull allocates, the registry beside it included; a bomb holds 64 MiB."""


def pulled(site: Scene, layout: Layout) -> StoreEntry:
    registry = site.client()
    pinned = site.ref.pinned(registry.resolve(site.ref))
    verdict = Verifier(Verification(policies=[site.policy])).verify(registry, pinned, "team")
    if not verdict.allowed:
        raise GKMError(verdict.reason, verdict.message)
    return pull.fetch(registry, cache.describe(registry, pinned), layout, max_bytes=MAX_BYTES)


def lowered(monkeypatch: pytest.MonkeyPatch, row: Row) -> None:
    for name, value in row.bounds.items():
        module, _, bound = name.rpartition(".")
        monkeypatch.setattr(import_module(f"gkm.images.{module}"), bound, value)


@contextmanager
def nothing_else_is_touched(directory: Path) -> Iterator[None]:
    """Check that no file outside `state` and `run` changed."""
    (directory / "victim").write_text("mine")
    before = seen(directory)
    yield
    assert seen(directory) == before


def seen(directory: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in [directory, *(path for top in directory.iterdir() for path in below(top))]:
        status = path.lstat()
        found[str(path)] = (stat.S_IMODE(status.st_mode), status.st_nlink, status.st_mtime_ns)
    return found


def below(path: Path) -> Iterator[Path]:
    if path.name not in ("state", "run"):
        yield path
        yield from path.rglob("*") if path.is_dir() else ()


def test_an_honest_image_is_pulled(tmp_path: Path, layout: Layout) -> None:
    with scene(tmp_path) as site:
        site.put(GOOD)
        assert pulled(site, layout).files == 1


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_hostile_registry_gives_a_reason_and_leaves_no_file(
    row: Row, tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered(monkeypatch, row)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    with scene(tmp_path, tls=row.tls) as site:
        row.setup(site)
        with nothing_else_is_touched(tmp_path), traced_below(MAX_MEMORY), pytest.raises(GKMError) as caught:
            pulled(site, layout)
        assert not site.gave_away()
    error = caught.value
    assert (error.reason, row.message in f"{error} {error.detail}") == (row.reason, True), str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 1000
    assert SECRET not in str(error)
    assert not list(layout.store.iterdir())
    assert not list(layout.work.iterdir())
    assert_only_blobs(layout, row)


def assert_only_blobs(layout: Layout, row: Row) -> None:
    """Check that only blobs remain for the next attempt: partial ones, and whole ones with the right digest.

    No blob remains of an image that is refused for its content.
    """
    if row.reason not in TRANSIENT:
        assert not layout.blobs.exists() or not list(layout.blobs.iterdir())
    for path in layout.blobs.iterdir() if layout.blobs.exists() else ():
        status = path.lstat()
        assert (stat.S_IMODE(status.st_mode), status.st_nlink) == (0o600, 1)
        digest = re.fullmatch(r"[0-9a-f]{16}-([0-9a-f]{64})(\.part)?", path.name)
        assert digest is not None
        if digest[2]:
            assert row.parts or status.st_size == 0
        else:
            assert hashlib.sha256(path.read_bytes()).hexdigest() == digest[1]


def test_every_class_and_every_named_case_has_its_row() -> None:
    assert {row.group for row in ROWS} == set(range(1, 9))
    assert {row.cve for row in ROWS} >= CVES - {"CVE-2026-50151"}
    assert all(row.effect for row in ROWS if row.cve)
    assert len({str(row) for row in ROWS}) == len(ROWS)
