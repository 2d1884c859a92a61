"""`make gpu-bundle`: the wheels that `make gpu` needs on a machine without a package index, in build/gpu/bundle.

For Python 3.11 and 3.12 on machines like this one, or on aarch64 with MACHINE=aarch64 (GH200, GB200); torch and Triton
are not in it, the machine has them. Versions are those of requirements.lock.
"""

import argparse
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

BUNDLE = Path("build/gpu/bundle")
MAX_BYTES = 60 << 20
PYTHONS = ("3.11", "3.12")
MACHINES = ("x86_64", "aarch64")
TAGS = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
PACKAGES = (
    *("backports.zstd", "cryptography", "google-re2", "isal", "msgspec", "pyyaml", "rfc3161-client", "rfc8785"),
    *("sigstore", "urllib3", "nvidia-ml-py", "pynacl", "rich", "typer"),
    *("grpcio", "protobuf", "pytest"),
)
"""What the commands for caches import: `gkm`'s extra cli, without the clients of Kubernetes and the planner; then what
bench/bench_coldstart.py needs, which runs the CSI driver."""


def main() -> int:
    """Fill the folder; return 1 if it is larger than what may travel."""
    parser = argparse.ArgumentParser(prog="python -m gpu_proof.bundle", description=__doc__)
    parser.add_argument("--machine", choices=MACHINES, default=platform.machine(), help="as `uname -m` prints it there")
    machine = parser.parse_args().machine
    shutil.rmtree(BUNDLE, ignore_errors=True)
    BUNDLE.mkdir(parents=True)
    pins = re.findall(r"(?m)^([A-Za-z0-9._-]+==[^ ;\\]+)", Path("requirements.lock").read_text(encoding="utf-8"))
    (BUNDLE / "constraints.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")
    (BUNDLE / "requirements.txt").write_text("\n".join(PACKAGES) + "\n", encoding="utf-8")
    platforms = [word for tag in TAGS for word in ("--platform", f"{tag}_{machine}")]
    for version in PYTHONS:
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--only-binary", ":all:", "--implementation", "cp", "--python-version", version, *platforms),
            *("--dest", str(BUNDLE), "--constraint", str(BUNDLE / "constraints.txt")),
            *("--requirement", str(BUNDLE / "requirements.txt")),
        ]
        subprocess.run(command, check=True)
    size = sum(path.stat().st_size for path in BUNDLE.iterdir())
    print(f"{BUNDLE}: {len(list(BUNDLE.glob('*.whl')))} wheels, {size / (1 << 20):.1f} MiB of {MAX_BYTES >> 20} MiB")
    return int(size > MAX_BYTES)


if __name__ == "__main__":
    sys.exit(main())
