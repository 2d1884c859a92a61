"""One pull by one peer, in a process of its own: prints seconds, peak memory and the number of files."""

import hashlib
import json
import os
import resource
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

Task = dict[str, str]


def ours(task: Task) -> Callable[[], None]:
    """Return our pull: signature (by the task's `key`), labels, blobs checked, files hashed and sealed, one rename."""
    from gkm.api.config import Policy, Registries, RegistryHost, Verification
    from gkm.hoststate.layout import Layout
    from gkm.images import cache
    from gkm.images.pulling import pull
    from gkm.images.reference import Reference
    from gkm.images.registries.registry import Registry
    from gkm.images.signatures.verify import Verifier

    layout = Layout(Path(task["directory"]) / "state", Path(task["directory"]) / "run")
    layout.make_directories()
    client = Registry(Registries(hosts={task["host"]: RegistryHost(plain_http=True)}))
    ref = Reference.parse(f"{task['host']}/bench/{_name(task)}@{task['digest']}")

    verifier = Verifier(Verification(policies=[Policy([task["key"]])] if "key" in task else []))

    def run() -> None:
        if "key" in task:
            assert verifier.verify(client, ref, None).verified
        pull.fetch(client, cache.describe(client, ref), layout, max_bytes=1 << 40)

    return run


def oraspy(task: Task) -> Callable[[], None]:
    """Return the pull with oras-py, which checks no digest, so the bench adds sha256 and tarfile's data filter."""
    import oras.client

    client = oras.client.OrasClient(insecure=True)
    target = f"{task['host']}/bench/{_name(task)}@{task['digest']}"

    def pull() -> None:
        (path,) = client.pull(target=target, outdir=task["directory"], allowed_media_type=[])
        with Path(path).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == task["layer"].removeprefix("sha256:")
        with tarfile.open(path) as archive:
            archive.extractall(Path(task["directory"]) / "out", filter="data")
        Path(path).unlink()

    return pull


def skopeo(task: Task) -> Callable[[], None]:
    """Return skopeo, which checks digests, and tar."""
    directory = Path(task["directory"])
    source = f"docker://{task['host']}/bench/{_name(task)}@{task['digest']}"

    def pull() -> None:
        copy = [
            "skopeo",
            "copy",
            "--quiet",
            "--insecure-policy",
            "--src-tls-verify=false",
            source,
            f"dir:{directory}/d",
        ]
        subprocess.run(copy, check=True)
        blob = directory / "d" / task["layer"].removeprefix("sha256:")
        (directory / "out").mkdir()
        subprocess.run(["tar", "-xzf", str(blob), "-C", str(directory / "out")], check=True)
        blob.unlink()

    return pull


def floor(task: Task) -> float:
    """Return the seconds of the stages alone: receive and write the blob, hash it, decompress it, write the files."""
    directory = Path(task["directory"])
    blob, inflated = directory / "blob", directory / "tar"
    with inflated.open("wb") as output:
        seconds = _timed(lambda: _receive(task, blob))
        seconds += _timed(lambda: _hash(blob))
        seconds += _timed(lambda: _inflate(blob, len))
        _inflate(blob, output.write)  # for the next stage; not counted
    seconds += _timed(lambda: _write_files(inflated, directory / "out"))
    inflated.unlink()
    blob.unlink()
    return seconds


def _timed(stage: Callable[[], object]) -> float:
    began = time.monotonic()
    stage()
    return time.monotonic() - began


def _receive(task: Task, blob: Path) -> None:
    url = f"http://{task['host']}/v2/bench/{_name(task)}/blobs/{task['layer']}"
    buffer = memoryview(bytearray(1 << 20))
    with urllib.request.urlopen(url) as answer, blob.open("wb", buffering=0) as file:
        while count := answer.readinto(buffer):
            file.write(buffer[:count])


def _hash(blob: Path) -> None:
    with blob.open("rb") as file:
        hashlib.file_digest(file, "sha256")


def _inflate(blob: Path, write: Callable[[bytes], object]) -> None:
    from isal import igzip_lib

    decompressor = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    with blob.open("rb") as file:
        while part := file.read(64 << 10):
            write(decompressor.decompress(part))


def _write_files(archive: Path, out: Path) -> None:
    """Copy the files out of a tar, reading its headers in the simplest way; only this is timed of it."""
    with archive.open("rb") as file:
        while any(header := file.read(512)):
            size = int(header[124:135], 8)
            if header[156:157] == b"0":
                path = out / header[:100].rstrip(b"\0").decode()
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.read(size))
                file.seek(-size % 512, os.SEEK_CUR)
            else:
                file.seek(size + -size % 512, os.SEEK_CUR)


def _name(task: Task) -> str:
    return task["name"]


def main() -> None:
    """Run the task of the command line and print its cost."""
    task: Task = json.loads(sys.argv[1])
    peers = {"ours": ours, "oraspy": oraspy, "skopeo": skopeo}
    run = peers[task["peer"]](task) if task["peer"] in peers else None
    before = _cpu_seconds()
    seconds = floor(task) if run is None else _timed(run)
    cpu = _cpu_seconds() - before
    out = Path(task["directory"])
    root = next(path for path in (out / "out", out / "state" / "store") if path.exists())
    files = sum(len(names) for directory, _, names in os.walk(root) if not directory.endswith("sha256"))
    lists = len(list(root.glob("sha256/*/*.json")))
    print(json.dumps({"seconds": seconds, "cpu": cpu, "rss_mib": _peak_mib(), "files": files - lists}))


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children so far."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _peak_mib() -> float:
    """Return the peak of this process: getrusage would count the parent's memory at the fork as well."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()
