"""The directories above a store, for a user who may not list them."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm_cli.cache import store_directories

USER = 65534


@pytest.fixture
def home(as_root: None) -> Iterator[Path]:  # noqa: ARG001 -- it changes owners
    """A directory of root that others pass and do not list, as /home is in some installations; it has one of a user."""
    with tempfile.TemporaryDirectory(prefix="gkm-home-") as directory:
        above = Path(directory)
        above.chmod(0o711)
        (above / "user").mkdir(0o700)
        os.chown(above / "user", USER, USER)
        os.seteuid(USER)
        try:
            yield above / "user"
        finally:
            os.seteuid(0)


def test_a_user_needs_no_right_to_list_the_directories_above(home: Path) -> None:
    with pytest.raises(PermissionError):
        list(home.parent.iterdir())
    store_directories.make(home / ".cache" / "gkm" / "exec")
    made = [home / ".cache", home / ".cache" / "gkm", home / ".cache" / "gkm" / "exec"]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3


def test_what_an_earlier_version_opened_is_closed_and_no_right_is_added(tmp_path: Path) -> None:
    for before, after in ((0o755, 0o700), (0o711, 0o700), (0o500, 0o500), (0o1755, 0o700)):
        directory = tmp_path / f"{before:o}"
        directory.mkdir()
        directory.chmod(before)
        store_directories.limit([directory], store_directories.PRIVATE)
        assert directory.stat().st_mode & 0o7777 == after
