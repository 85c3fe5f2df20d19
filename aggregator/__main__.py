"""`python -m aggregator pretrain ...`: what an aggregator does before a run. The service is `auscult aggregator`."""

from __future__ import annotations

import sys

from aggregator.private_model.pretrain import main
from edge_sdk.errors import UsageError

if sys.argv[1:2] != ["pretrain"]:
    sys.exit("usage: python -m aggregator pretrain DATA -o DIRECTORY [options]")
try:
    sys.exit(main(sys.argv[2:]))
except UsageError as error:
    print(f"auscult: {error}", file=sys.stderr)
    sys.exit(2)
