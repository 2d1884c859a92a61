"""Reads a good survey beside one in a file, with the limit of memory that `gkm-operator provider` sets."""

import json
import sys
from pathlib import Path

from gkm_operator.hypernodes.providers.command import limit_memory
from gkm_operator.hypernodes.providers.infiniband import SurveyReader
from gkm_operator.hypernodes.providers.view import AgentReport
from support.topology.infiniband_views import TEXT, groups, known
from support.topology.observed import survey


def main() -> None:
    limit_memory(int(sys.argv[1]))
    other = AgentReport("Survey", "bomb", Path(sys.argv[2]).read_bytes())
    found = SurveyReader().read(known(survey("a", TEXT), other))
    print(json.dumps({"groups": groups(found), "faults": found.faults}))


if __name__ == "__main__":
    main()
