"""The real driver, blocked in a chosen step: EVENT PART FILE FLAGS…; it creates FILE when it reaches the step."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gkm_csi import main


def hold_at(event: str, part: str, reached: Path) -> None:
    """Block the thread that reaches the first `event` whose first argument holds `part`."""

    def check(name: str, arguments: tuple[object, ...]) -> None:
        if name == event and part in str(arguments[0]) and not reached.exists():
            reached.touch()
            while True:
                time.sleep(1)

    sys.addaudithook(check)


if __name__ == "__main__":
    hold_at(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    sys.exit(main.main(sys.argv[4:]))
