"""The real driver, killed before a chosen step: EVENT PART FLAGS…"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gkm_csi import main
from support.csi.steps import kill_at

if __name__ == "__main__":
    kill_at(sys.argv[1], sys.argv[2])
    sys.exit(main.main(sys.argv[3:]))
