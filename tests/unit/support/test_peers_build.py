"""The builder of partners: keys, provided binaries, and what it says without Go. Nothing is built here."""

import re
from pathlib import Path

import pytest
from support.peers import build as peers
from support.peers.go_modules import PEERS, Command, Peer
from support.peers.missing import Missing

PINNED = "module m\n\ngo 1.26.0\n\ntool example.test/thing/cmd/thing\n\nrequire example.test/thing v1.2.3\n"


def written(directory: Path, module: str = PINNED, sums: str = "") -> Peer:
    directory.mkdir(exist_ok=True)
    (directory / "go.mod").write_text(module)
    (directory / "go.sum").write_text(sums)
    return Peer.read(directory)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GKM_PEERS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("GKM_TIER", raising=False)
    return tmp_path / "cache"


FILES_ONLY = {"kai", "volcano"}
"""Partners whose definitions and policies are used, not their commands."""


def test_every_partner_with_commands_names_them() -> None:
    without = {directory.name for directory in peers.directories() if not Peer.read(directory).commands}
    assert without == FILES_ONLY


@pytest.mark.parametrize("name", sorted(FILES_ONLY))
def test_a_partner_without_commands_pins_one_module(name: str) -> None:
    text = (PEERS / name / "go.mod").read_text()
    assert len(re.findall(r"^require \S+ v\S+$", text, re.MULTILINE)) == 1


def test_etcd_goes_by_its_own_name() -> None:
    assert Command("etcd", "go.etcd.io/etcd/server/v3") in Peer.read(PEERS / "kubernetes").commands


def test_kubernetes_is_stamped_with_its_pinned_version() -> None:
    peer, command = peers.find("kubelet")
    version = peer.version(command).removeprefix("k8s.io/kubernetes ")
    assert f"gitVersion={version} " in peer.flags[-1]


def test_a_single_tool_line_is_read_like_a_block(tmp_path: Path) -> None:
    assert written(tmp_path / "p").commands == (Command("thing", "example.test/thing/cmd/thing"),)


def test_the_version_is_the_one_of_the_module_that_holds_the_command(tmp_path: Path) -> None:
    peer = written(tmp_path / "p")
    assert peer.version(peer.commands[0]) == "example.test/thing v1.2.3"


def test_a_changed_pin_is_another_cache_entry(tmp_path: Path) -> None:
    before = written(tmp_path / "p").key
    assert written(tmp_path / "p", PINNED.replace("v1.2.3", "v1.2.4")).key != before


def test_a_changed_checksum_is_another_cache_entry(tmp_path: Path) -> None:
    before = written(tmp_path / "p").key
    assert written(tmp_path / "p", sums="example.test/thing v1.2.3 h1:x\n").key != before


def test_without_go_the_builder_says_so_in_one_sentence(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(empty_cache))
    with pytest.raises(Missing, match=r"^Go is missing: [^\n]*$"):
        peers.binary("olareg")


def test_what_is_built_already_needs_no_go(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(empty_cache))
    peer, command = peers.find("olareg")
    built = empty_cache / f"olareg-{peer.key}" / command.name
    built.parent.mkdir(parents=True)
    built.touch(mode=0o755)
    assert peers.binary("olareg") == built


def test_an_unfinished_build_is_not_taken_for_a_binary(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(empty_cache))
    peer, _ = peers.find("olareg")
    unfinished = empty_cache / f"olareg-{peer.key}" / ".olareg.building"
    unfinished.parent.mkdir(parents=True)
    unfinished.touch(mode=0o755)
    assert not peers.available("olareg")


def test_kubebuilder_assets_stand_in_for_kubernetes(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etcd").touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert peers.binary("etcd") == tmp_path / "etcd"
    assert not empty_cache.exists()


def test_an_unknown_command_is_an_error_not_a_missing_partner() -> None:
    with pytest.raises(RuntimeError, match=r"no partner below .* has a command 'nonsense'"):
        peers.binary("nonsense")
