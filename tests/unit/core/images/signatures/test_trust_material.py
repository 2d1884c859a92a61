"""Keys and fingerprints of policies' files: a removed file is missing at once, whatever was read before."""

from pathlib import Path

import pytest
from gkm.api.errors import GKMError
from gkm.images.signatures import keys, trust_material
from support.host.descriptors_used_up import descriptors_used_up
from support.sigstore.key_signatures import SigningKey

KEY = SigningKey().public_pem


@pytest.fixture
def appearing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a missing file that appears right after the look at its stamp."""
    path = tmp_path / "cosign.pub"
    stamp = trust_material.stamp

    def stamped(name: str) -> object:
        found = stamp(name)
        path.write_bytes(KEY)
        return found

    monkeypatch.setattr(trust_material, "stamp", stamped)
    return path


def test_a_key_that_appeared_during_the_look_and_was_removed_again_is_missing(
    appearing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trust_material.key(str(appearing)) == keys.load(KEY.decode())
    monkeypatch.undo()
    appearing.unlink()
    with pytest.raises(GKMError, match=r"cosign\.pub"):
        trust_material.key(str(appearing))


def test_a_fingerprint_does_not_take_a_removed_file_for_the_one_that_appeared(
    appearing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = trust_material.fingerprint([str(appearing)])
    monkeypatch.undo()
    appearing.unlink()
    assert trust_material.fingerprint([str(appearing)]) != present


def test_unchanged_files_have_one_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "cosign.pub"
    path.write_bytes(KEY)
    first = trust_material.fingerprint([str(path)])
    assert trust_material.fingerprint([str(path)]) == first
    assert trust_material.fingerprint([str(path)], b"other rules") != first


def test_a_file_that_cannot_be_read_now_changes_no_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "cosign.pub"
    path.write_bytes(KEY)
    with descriptors_used_up(path), pytest.raises(OSError, match="Too many open files"):
        trust_material.fingerprint([str(path)])
    first = trust_material.fingerprint([str(path)])
    other = tmp_path / "other.pub"
    other.write_bytes(KEY)
    assert trust_material.fingerprint([str(other)]) == first, "every image is verified again"
