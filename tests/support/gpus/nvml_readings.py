"""A process that reads one machine after the other with the real binding: `nvml_readings.py MACHINES PCI-DEVICES`.

MACHINES is a JSON list of machines for the NVML library of tests. The process prints the readings as a JSON list. One
process reads all, because every combination of a call and an error is a machine.
"""

import json
import os
import sys
from pathlib import Path

import msgspec
from gkm.gpus import nvidia
from gkm.gpus.probe import read_vendor

DESCRIPTION = "GKM_FAKE_NVML"


def main() -> None:
    """Read every machine."""
    machines, devices = (Path(argument) for argument in sys.argv[1:])
    readings = []
    for machine in json.loads(machines.read_text()):
        Path(os.environ[DESCRIPTION]).write_text(json.dumps(machine))
        readings.append(read_vendor("Nvidia", nvidia.read, devices))
    sys.stdout.buffer.write(msgspec.json.encode(readings))


if __name__ == "__main__":
    main()
