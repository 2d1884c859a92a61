"""Read the GPUs of this machine in a child process that is bounded in time and output; its answer is not trusted."""

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gkm.api import json_limits
from gkm.gpus import pci
from gkm.gpus.values import Inventory
from gkm.hoststate.bounded_command import BoundedCommand, RunFailed

TIMEOUT_SECONDS = 30.0
"""Limit in seconds. Without the persistence daemon nvmlInit wakes each GPU, a second or two each; a longer call
hangs."""

MAX_OUTPUT = 1 << 20


class InventoryReader:
    """Reads the GPUs in a child process, never in two at a time, even if a broken driver blocks one in the kernel.

    `devices` is the directory of PCI devices.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        devices: Path = pci.DEVICES,
    ) -> None:
        arguments = [sys.executable, "-P", "-m", "gkm.gpus.probe", str(devices)]
        self._command = BoundedCommand(arguments, timeout, MAX_OUTPUT, environment)

    def read(self) -> Inventory:
        """Return the GPUs that are present now. It never raises: a failure is an error in the returned inventory."""
        try:
            result = self._command.run()
        except RunFailed as error:
            return _failed(f"the probe {error}")
        if result.code != 0:
            return _failed(f"the probe ended with {result.code}")
        return decode(result.output)


def decode(output: bytes) -> Inventory:
    """Return the inventory that a probe printed; an inventory with an error if the output is invalid."""
    try:
        json_limits.check_objects(output)
        json_limits.check_items(output)
        reading = msgspec.json.decode(output, type=Inventory)
    except (msgspec.DecodeError, json_limits.TooManyValues, UnicodeDecodeError, RecursionError) as error:
        return _failed(f"the probe's answer cannot be read: {error}")
    if len({gpu.index for gpu in reading.gpus}) != len(reading.gpus):
        return _failed("the probe's answer names a GPU twice")
    return reading


def _failed(problem: str) -> Inventory:
    return Inventory(errors=(f"GPUs cannot be read: {problem[:200]}",))
