"""What can be said of the images without building them."""

import os
from pathlib import Path

import pytest
from support.peers.missing import Missing
from support.product_images import build as product_images
from support.product_images import pip_outside


def test_the_environment_wins_and_only_what_a_container_can_follow_is_carried() -> None:
    listed = [
        ":env:.cert='/etc/own.pem'",
        ":env:.find-links='/opt/wheels'",
        "global.cert='/etc/other.pem'",
        "global.index-url='https://index.example/simple'",
        "install.timeout='30'",
        "global.cache-dir='/var/cache/pip'",
    ]
    assert pip_outside.settings(listed) == {
        "cert": "/etc/own.pem",
        "index-url": "https://index.example/simple",
        "timeout": "30",
    }


def test_the_trusted_certificates_are_mounted_where_the_configuration_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = tmp_path / "own.pem"
    trusted.touch()
    monkeypatch.setenv("PIP_CERT", str(trusted))
    certificates, configuration = pip_outside.volumes(tmp_path)
    assert certificates == f"{trusted}:{pip_outside.TRUST}:ro"
    assert configuration == f"{tmp_path / 'pip.conf'}:/etc/pip.conf:ro"
    assert f"cert = {pip_outside.TRUST}" in (tmp_path / "pip.conf").read_text()


def test_every_file_that_goes_into_an_image_makes_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_images, "ROOT", tmp_path)
    for name in (".dockerignore", "Dockerfile.agent", "README.md", "core/gkm/a.py", "core/gkm/__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a")
    (tmp_path / ".dockerignore").write_text("*\n!README.md\n!core\n")

    def key() -> str:
        return product_images._key(product_images._context())

    keys = {key()}
    for name in ("Dockerfile.agent", "README.md", "core/gkm/a.py"):
        (tmp_path / name).write_text("b")
        assert key() not in keys, name
        keys.add(key())
    (tmp_path / "core/gkm/__pycache__/a.pyc").write_text("b")
    (tmp_path / "LICENSE").write_text("not copied here")
    assert key() in keys


def test_what_is_missing_is_named_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKM_PEERS_CACHE", str(tmp_path / "peers"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(Missing, match="debootstrap, buildah"):
        product_images.archives()
    assert not (tmp_path / "images").exists()
