"""Runs the agent's capture worker again and again, each time killed one step later, over a registry of another process.

    python killed_capture.py DIRECTORY HOST STRIDE [family]

A step is what the interpreter audits on the disk (open, rename, remove, mkdir, rmdir below DIRECTORY) and on the
network (each connection). SIGKILL comes before it. After each kill one more worker is killed at a random step, then one
runs to its end. With `family` the node has a generation already, which the capture extends. The output says how many
kills there were, and in how many runs each state was the one on the disk.
"""

import collections
import json
import os
import random
import shutil
import sys
from pathlib import Path

from gkm.hoststate import trees
from gkm.hoststate.names import CacheRef
from support.agent.capturing import CaptureNode
from support.agent.generations import FamilyNode
from support.agent.killed_agent import in_child

MAX_STEPS = 3000
NETWORK = "socket.connect"
DISK = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"})


class Killer:
    """Kills its process before the n-th step."""

    def __init__(self, steps: int, root: str) -> None:
        self._left = steps
        self._root = root

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        ours = event in DISK and any(str(value).startswith(self._root) for value in arguments)
        if ours or event == NETWORK:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), 9)


def run(node: CaptureNode) -> int:
    """Make images once, as a starting agent does."""
    worker = node.worker()
    node.now += 60
    return 0 if worker.make_images() else 1


def killed_run(node: CaptureNode, kill_at: int) -> bool:
    """Run in a child that is killed at a step (0: never); return whether it was killed."""

    def action() -> int:
        if kill_at:
            sys.addaudithook(Killer(kill_at, str(node.root)))
        return run(node)

    status = in_child(action, 0, node.root)
    if not os.WIFSIGNALED(status) and status:
        raise RuntimeError(f"a worker ended with {os.waitstatus_to_exitcode(status)}")
    return os.WIFSIGNALED(status)


def leave_capture(node: CaptureNode, namespace: str, *, family: bool) -> None:
    """Leave a capture in a node, beside a generation of its family that the node has."""
    if not family:
        node.capture(namespace=namespace)
        return
    generations = FamilyNode(node, CacheRef(namespace, "llama"))
    node.capture("csi-0", namespace=namespace, family="llama")
    generations.choose(generations.report("csi-0"))
    trees.remove(node.layout.captured / "csi-0")
    node.capture(namespace=namespace, family="llama", copies=("A" * 52,))


def main(directory: Path, host: str, stride: int, *, family: bool = False) -> None:
    generator = random.Random(20)
    states: collections.Counter[str] = collections.Counter()
    kills, images, announced = 0, set(), 0
    key = directory / "cosign.key"
    for step in range(1, MAX_STEPS, stride):
        # One namespace for each step, so that each begins with an empty repository.
        namespace = f"step-{step}"
        node = CaptureNode(directory / namespace, host)
        node.root.mkdir()
        shutil.copy(key, node.key_file)
        leave_capture(node, namespace, family=family)
        killed = killed_run(node, step)
        states[node.progress().state] += killed
        if killed:
            kills += 1
            kills += killed_run(node, generator.randint(1, step + 5))
            states[node.progress().state] += 1
        killed_run(node, 0)
        worker = node.worker()
        worker.make_images()
        (report,) = worker.reports()[namespace]
        announced += report.state == "Announced"
        images.add(report.image.partition("@")[2])
        leftovers = {path.name for path in (node.layout.captured / "csi-1").iterdir()}
        if leftovers != {"captured.json", "content", "progress.json", "image-files.json"}:
            raise RuntimeError(f"killed at {step}: {leftovers} are there")
        shutil.rmtree(node.root)
        if not killed:
            break
    outcome = {"kills": kills, "announced": announced, "images": sorted(images), "states": dict(states)}
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), family="family" in sys.argv[4:])
