"""The transport lab: measures, models and predicts the throughput of long paths.

- `measure`: campaigns over emulated paths. `importers`: results of other tools. `runs`: the table of both.
- `profiles`: means against the round trip, bands, and the transition from concave to convex. `models`: what they should be.
- `utilization`: coefficients of an infrastructure. `composition`: stages of a file transfer.
- `dynamics`: ramp and sustainment of a trace, maps and exponents.
- `tuning`: choice of transport, streams and buffer. `path_memory`: what the mover knows about paths. `predict`: the time of a copy.
- `resilience`: games of a defender and an attacker of an infrastructure.
- `analysis`, `plots`, `report`: all results of a table, their figures, and a page of them.

Units are in the names: `rtt_s`, `buffer_bytes`, `throughput_bits_per_s`. The design is in docs/rfcs/0010-transport-lab.md.
"""

import sys
from importlib import util

_NEEDED = ("matplotlib", "numpy", "pandas", "pyarrow", "scipy", *(("tomli",) if sys.version_info < (3, 11) else ()))
_missing = [name for name in _NEEDED if util.find_spec(name) is None]
if _missing:
    raise ImportError(f"towpath.lab needs {', '.join(_missing)}: install the extra, pip install 'towpath[lab]'")
