"""Parses one hostile topology file, whose name is the argument, and prints its size and the growth of the memory."""

import random
import sys

from gkm.topology.fabrics import ibnetdiscover
from support.host.memory import memory_of, reset_peak

HEAD = b'#\nSwitch\t1 "S-0000000000000001"\n'
FORMS = {
    "links": b'[1]\t"S-%016x"[1]\n',
    "hosts": b'[1]\t"H-%016x"[1](%016x)# "%016x"\n',
    "switches": b'Switch 1 "S-%016x"\n',
    "adapters": b"sysimgguid=0x%x\ncaguid=0x%x\n",
    "damaged": b"[%x\n",
}
LINES = ibnetdiscover.MAX_PORTS - 1


def main() -> None:
    form = FORMS[sys.argv[1]]
    order = random.Random(1)
    text = HEAD + b"".join(form % tuple(order.getrandbits(62) for _ in range(form.count(b"%"))) for _ in range(LINES))
    before = reset_peak()
    try:
        ibnetdiscover.parse(text)
    except ibnetdiscover.NotASurvey:
        outcome = "refused"
    else:
        outcome = "parsed"
    print(outcome, len(text), memory_of("self", "VmHWM") - before)


if __name__ == "__main__":
    main()
