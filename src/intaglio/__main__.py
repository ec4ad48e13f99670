"""`python -m intaglio`: the command line."""

import sys

from intaglio.cli.main import main

sys.exit(main())
