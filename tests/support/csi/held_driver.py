"""The real driver, held up in a chosen step for ever: EVENT PART SAID FLAGS…; the file SAID tells that it is there."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gkm_csi import main


def hold_at(event: str, part: str, said: Path) -> None:
    """Hold the thread that comes to the first `event` whose first argument holds `part`."""

    def check(name: str, arguments: tuple[object, ...]) -> None:
        if name == event and part in str(arguments[0]) and not said.exists():
            said.touch()
            while True:
                time.sleep(1)

    sys.addaudithook(check)


if __name__ == "__main__":
    hold_at(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    sys.exit(main.main(sys.argv[4:]))
