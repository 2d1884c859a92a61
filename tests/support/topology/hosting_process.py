"""A process that hosts one provider until it is killed: `python hosting_process.py DIRECTORY PROVIDER`."""

import sys
import time
from pathlib import Path

from support.topology.hosted_providers import hosted, misbehaves


def main() -> None:
    directory, name = Path(sys.argv[1]), sys.argv[2]
    with hosted(directory, misbehaves(name, directory)) as running:
        running.serves(name)
        print("serves", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    main()
