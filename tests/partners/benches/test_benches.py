"""Every bench runs, at its smallest size, and has the figures that documents cite. How large they are no test says.

The tests of benches that need more are with others of what they need (ELSEWHERE).
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from support.benches.cited_figures import CITED
from support.benches.smallest import ROOT, run, smallest, unusable
from support.peers import require
from support.triton import installation as triton

pytestmark = pytest.mark.timeout(600)

KUBERNETES = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")


@dataclass(frozen=True)
class Needs:
    """What a bench needs of this machine and of partners; `commands` are names and their packages of Debian."""

    peers: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    root: bool = False
    triton: bool = False

    def check(self) -> None:
        if self.root:
            require.root()
        for name, package in self.commands:
            require.command(name, package)
        for command in self.peers:
            require.peer(command)
        if self.triton:
            with require.absences():
                triton.python()


GCC = ("gcc", "gcc")
NEEDS = {
    "agent": Needs(commands=(GCC,)),
    "agent_api": Needs(KUBERNETES, commands=(GCC,)),
    "csi": Needs(("noopcsi",), root=True),
    "delivery": Needs(("olareg",), root=True, triton=True),
    "domains": Needs(KUBERNETES),
    "fleet": Needs(KUBERNETES),
    "groups": Needs(KUBERNETES),
    "layers": Needs(commands=(("mkfs.ext4", "e2fsprogs"), ("losetup", "mount")), root=True),
    "packing": Needs(),
    "pull": Needs(("olareg",), commands=(("skopeo", "skopeo"),)),
    "rollout": Needs(("distribution",), commands=(GCC,)),
    "topology": Needs(KUBERNETES),
    "verify": Needs(("olareg",)),
}
ELSEWHERE = {
    "coldstart": "partners/triton/test_coldstart_bench.py",
    "families": "e2e/test_families_bench.py",
    "followed": "partners/topology/test_followed_bench.py",
    "install": "e2e/product_images/test_install_bench.py",
    "peers": "e2e/test_peers_bench.py",
}


@pytest.mark.parametrize("name", NEEDS)
def test_a_bench_has_each_figure_that_documents_cite(name: str, tmp_path: Path) -> None:
    NEEDS[name].check()
    document, table = smallest(name, tmp_path)
    assert document["size"] == "smallest"
    assert unusable(document["figures"], CITED[name]) == []
    assert table.startswith(f"\n{name}\n")


def test_each_bench_has_a_test() -> None:
    benches = {path.stem.removeprefix("bench_") for path in (ROOT / "bench").glob("bench_*.py")}
    assert benches == set(CITED) == {*NEEDS, *ELSEWHERE}
    assert [path for path in ELSEWHERE.values() if not (ROOT / "tests" / path).is_file()] == []


def test_an_unknown_bench_is_refused_with_the_names_of_all(tmp_path: Path) -> None:
    done = run("--smallest", "fleets", directory=tmp_path)
    assert done.returncode == 2
    assert f"unknown bench fleets; the benches are {', '.join(sorted(CITED))}" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_figure_that_is_missing_or_no_number_is_named() -> None:
    figures: dict[str, object] = {"fine": 1, "none": None, "endless": float("inf"), "never": float("nan"), "yes": True}
    assert unusable(figures, ("fine", "gone")) == ["endless", "gone", "never", "none", "yes"]
    assert unusable({"fine": 0.0}, ("fine",)) == []
