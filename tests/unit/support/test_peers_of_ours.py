"""Partners whose source is ours: their code is part of what is built, so it is part of the key."""

from pathlib import Path

from support.peers import build as peers
from support.peers.go_modules import PEERS, Command, Peer


def of(directory: Path, source: str) -> Peer:
    directory.mkdir(exist_ok=True)
    (directory / "go.mod").write_text("module example.test/ours\n\ngo 1.26.0\n\ntool example.test/ours\n")
    (directory / "go.sum").touch()
    (directory / "main.go").write_text(source)
    return Peer.read(directory)


def test_a_changed_source_is_another_cache_entry(tmp_path: Path) -> None:
    before = of(tmp_path / "p", "package main\n").key
    assert of(tmp_path / "p", "package main\n\nfunc main() {}\n").key != before


def test_the_driver_that_does_nothing_goes_by_the_name_of_its_directory() -> None:
    peer, command = peers.find("noopcsi")
    assert (peer.directory, command) == (PEERS / "noopcsi", Command("noopcsi", "gkm.io/tests/peers/noopcsi"))
