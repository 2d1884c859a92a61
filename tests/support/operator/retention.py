"""Worlds of registered captures, and the passes that end them."""

from datetime import timedelta

from gkm.api.config import CapturedCaches
from support.operator.captures import NOW, CapturesProcess, CapturesWorld, captured

DAY = 86_400.0


def world_with(*numbers: int, versions: int = 10) -> CapturesWorld:
    """Return a world with registered captures; a lower number is a newer one, by a minute."""
    world = CapturesWorld(CapturedCaches(max_age=DAY, versions=versions))
    for start in range(0, len(numbers), 32):
        part = numbers[start : start + 32]
        world.announce(f"node-{start}", *(captured(number, age=60.0 * number) for number in part))
    CapturesProcess(world).run(2 + len(numbers) // 8)
    return world


def later(world: CapturesWorld, seconds: float = 2 * DAY, passes: int = 6) -> CapturesProcess:
    """Return a process that has made its passes at a later time."""
    world.now = NOW + timedelta(seconds=seconds)
    process = CapturesProcess(world)
    process.run(passes)
    return process
