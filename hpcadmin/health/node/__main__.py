"""python -m hpcadmin.health.node: as the zipapp, from the source."""

import sys

from hpcadmin.health.node.main import main

sys.exit(main(sys.argv[1:]))
