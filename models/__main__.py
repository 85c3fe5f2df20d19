"""`python -m edge_sdk.models`."""

import sys

from edge_sdk.models.cli import main

sys.exit(main())
