"""The transport lab: measures, models and predicts the throughput of long paths.

- `towpath.lab.dynamics`: ramp and sustainment of a trace, maps and exponents.
- `towpath.lab.resilience`: games of a defender and an attacker of an infrastructure.

Units are in the names: `rtt_s`, `buffer_bytes`, `throughput_bits_per_s`. The design is in docs/rfcs/0010-transport-lab.md.
"""

from importlib import util

_NEEDED = ("matplotlib", "numpy", "pandas", "pyarrow", "scipy")
_missing = [name for name in _NEEDED if util.find_spec(name) is None]
if _missing:
    raise ImportError(f"towpath.lab needs {', '.join(_missing)}: install the extra, pip install 'towpath[lab]'")
