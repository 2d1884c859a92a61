"""GKM on arm64, where all multi-node NVLink machines are: tests, images and the demo on emulated machines.

Emulation proves what the programs do. It proves nothing about time.
"""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.arm64 import elf, kernels, machine, programs
from support.peers import require
from support.product_images import build as product_images
from support.product_images import unpacked

pytestmark = [pytest.mark.heavy, pytest.mark.images, pytest.mark.timeout(3 * 3600)]
SUITE_SECONDS, SECONDS = 2 * 3600.0, 1800.0
WITHOUT_PROCESSES = "not processes and not apiserver and not partners and not heavy"
PLACES = "--state /tmp/state --run /tmp/run --node node-1"
STARTS = {
    "agent": (f"--static /tmp/caches --status /tmp/status --config /tmp/config.yaml {PLACES}", "agent started"),
    "csi": (f"--kubelet /tmp/kubelet {PLACES}", "CSI driver ready"),
    "operator": ("controllers --config /tmp/config.yaml", "process failed"),
}
"""Process to its arguments and to a line of its log. The controllers say that they have no cluster."""


@pytest.fixture(scope="module", autouse=True)
def _emulation() -> None:
    require.root()
    require.command(machine.QEMU, "qemu-system-arm")
    with require.absences():
        programs.enable()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Path]]:
    """The directories of our programs in the images for arm64, by their place in a machine."""
    with require.absences():
        archives = product_images.archives("arm64")
    with ExitStack() as stack:
        places = tmp_path_factory.mktemp("images")
        roots = {
            process: stack.enter_context(unpacked.unpacked(path, places / process))
            for process, path in archives.items()
        }
        yield {f"/images/{process}": root / "opt" / "gkm" for process, root in roots.items()}


def passed(ended: machine.Ended) -> str:
    print(ended.console)  # noqa: T201 -- shown by -rP
    assert ended.code == 0, ended.console[-8000:]
    return ended.console


def test_unit_and_contract_tests_pass() -> None:
    script = machine.tests("-n", "2", "-m", WITHOUT_PROCESSES, "tests/unit", "tests/contract")
    passed(machine.run(kernels.kernel(4), script, SUITE_SECONDS))


def test_mounts_hold_with_larger_pages() -> None:
    """Memory of a tmpfs is counted in pages, so each limit of a volume depends on their size."""
    script = "test $(getconf PAGESIZE) = 16384 || exit 9\n" + machine.tests("tests/unit/core/mounts")
    passed(machine.run(kernels.kernel(16), script, SECONDS))


@pytest.mark.parametrize("page_kib", kernels.PACKAGES)
def test_a_cache_is_pulled_verified_mounted_and_read(page_kib: int) -> None:
    said = passed(machine.run(kernels.kernel(page_kib), "uname -m\npython3 -m demo.local", SECONDS))
    assert "\naarch64\n" in said
    assert "All of it came true." in said


def test_each_image_starts(images: Mapping[str, Path]) -> None:
    script = "\n".join([PRELUDE, *(start(process) for process in STARTS)])
    said = passed(machine.run(kernels.kernel(4), script, SECONDS, images))
    for process, (_, line) in STARTS.items():
        assert f"gkm-{process} {product_images.TAG}" in said
        assert line in said


def test_every_library_of_an_image_is_for_arm64_and_loads_with_pages_of_64_kib(images: Mapping[str, Path]) -> None:
    """No kernel of Debian has such pages; the loader refuses a library whose segments are aligned to less."""
    files = [path for root in images.values() for path in root.rglob("*.so*") if path.is_file()]
    libraries = {path: data for path in files if (data := path.read_bytes()).startswith(elf.MAGIC)}
    assert len(libraries) > 30
    assert {elf.machine(data) for data in libraries.values()} == {elf.AARCH64}
    assert {path.name for path, data in libraries.items() if elf.largest_page(data) < 65536} == set()


PRELUDE = """
set -e
uname -m
mkdir -p /opt/gkm /tmp/caches /tmp/kubelet
echo '{}' >/tmp/config.yaml
"""


def start(process: str) -> str:
    """Return the commands that start the program of an image, and that end it when its log has the line."""
    arguments, line = STARTS[process]
    return f"""
mount --bind /images/{process} /opt/gkm
/opt/gkm/bin/gkm-{process} --version
/opt/gkm/bin/gkm-{process} {arguments} >/tmp/log 2>&1 &
for second in $(seq 600); do
  if grep -q {shlex.quote(line)} /tmp/log || ! kill -0 $! 2>/dev/null; then break; fi
  sleep 1
done
cat /tmp/log
grep -q {shlex.quote(line)} /tmp/log
kill $! 2>/dev/null || true
wait $! || true
umount /opt/gkm
"""
