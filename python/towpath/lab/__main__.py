"""The command `towpath lab`."""

import sys

from towpath.lab.command import main

sys.exit(main())
