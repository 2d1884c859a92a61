"""Reading the GPUs of this machine: a child process, bounded in time and output, whose answer is not trusted."""

import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gkm.api import json_limits
from gkm.gpus import pci
from gkm.gpus.values import Inventory

TIMEOUT_SECONDS = 30.0
"""Without the persistence daemon nvmlInit wakes each GPU, a second or two each; beyond this the driver hangs."""

MAX_OUTPUT = 1 << 20
_KILL_SECONDS = 2.0


class InventoryReader:
    """Reads the GPUs, never with two children at a time.

    A child that a hung driver holds in the kernel cannot be killed; until it is gone no other is started, so that a
    broken driver does not gather processes. `devices` is the directory of PCI devices.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        devices: Path = pci.DEVICES,
    ) -> None:
        self._environment = environment
        self._timeout = timeout
        self._devices = devices
        self._stuck: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def read(self) -> Inventory:
        """Return what is there now. What goes wrong is an error in the reading; nothing is raised."""
        with self._lock:
            if self._stuck is not None and self._stuck.poll() is None:
                return _failed("the previous reading still hangs in the driver")
            self._stuck = None
            return self._read()

    def _read(self) -> Inventory:
        command = [sys.executable, "-P", "-m", "gkm.gpus.probe", str(self._devices)]
        try:
            process = subprocess.Popen(  # noqa: S603 -- our own module by our own interpreter
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=dict(os.environ if self._environment is None else self._environment),
            )
        except OSError as error:
            return _failed(f"the probe did not start: {error.strerror}")
        try:
            output = _output(process, time.monotonic() + self._timeout)
        finally:
            self._end(process)
        if output is None:
            return _failed(f"no answer within {self._timeout:.0f} s, or one beyond {MAX_OUTPUT} bytes")
        if process.returncode != 0:
            return _failed(f"the probe ended with {process.returncode}")
        return decode(output)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is not None:
            process.stdout.close()
        try:
            # One that closed its output is ending: let it, for its exit status says whether to believe it.
            process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.wait(_KILL_SECONDS)
            except subprocess.TimeoutExpired:
                self._stuck = process


def read(environment: Mapping[str, str] | None = None) -> Inventory:
    """Return the GPUs of this machine, once."""
    return InventoryReader(environment).read()


def decode(output: bytes) -> Inventory:
    """Return what a probe printed, or a reading that says why it cannot be believed."""
    try:
        json_limits.check_objects(output)
        json_limits.check_items(output)
        reading = msgspec.json.decode(output, type=Inventory)
    except (msgspec.DecodeError, json_limits.TooManyValues, UnicodeDecodeError, RecursionError) as error:
        return _failed(f"the probe's answer cannot be read: {error}")
    if len({gpu.index for gpu in reading.gpus}) != len(reading.gpus):
        return _failed("the probe's answer names a GPU twice")
    return reading


def _output(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """Return everything the process prints, None when it takes too long or prints too much; it is killed then."""
    assert process.stdout is not None  # noqa: S101 -- we asked for the pipe
    descriptor = process.stdout.fileno()
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while (remaining := deadline - time.monotonic()) > 0 and len(output) <= MAX_OUTPUT:
            if not selector.select(remaining):
                continue
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                return bytes(output)
            output += chunk
    process.kill()
    return None


def _failed(why: str) -> Inventory:
    return Inventory(errors=(f"GPUs cannot be read: {why[:200]}",))
