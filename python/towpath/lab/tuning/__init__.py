"""Choice of streams and buffers for a path, and searches for the best number of streams.

    >>> from towpath.lab import tuning
    >>> def measure(streams):
    ...     return 1e9 * min(streams, 6) / (1 + 0.02 * max(streams - 6, 0))
    >>> result = tuning.gp_ucb(measure, range(1, 33), runs=8)
    >>> result.runs, measure(result.chosen) > 0.9 * measure(6)
    (8, True)

There are two ways to a configuration. With profiles that were measured before, `select` compares their intervals at the round trip of
the path. Without them, a search measures some numbers of streams, one run after the other.

- `selection`: `select`, and its result `Selection`.
- `searches`: `full_sweep`, `ternary`, `doubling`, `kiefer_wolfowitz`, and `control_window` for the window of a target rate.
- `gaussian`: `gp_ucb`, the search for few runs, with `posterior`, its Gaussian process.

All searches return a `SearchResult`. A search calls `measure(setting)`, which makes one run and returns its throughput in bits per
second; the number of calls is bounded. An exception of it ends the search, and is raised. Throughput is the only goal: fairness and
the cost of streams are not considered. The best of several noisy values is too high on average ("winner's curse"), so results have
no throughput of the chosen setting: measure it again.

The choice by interpolated profiles is that of N. Rao's talk ("Some Science Aspects of Wide-Area Data Transport", 2018). It takes the
largest mean; `select` takes the largest lower end.
"""

from towpath.lab.tuning.gaussian import Posterior, gp_ucb, posterior
from towpath.lab.tuning.searches import SearchResult, control_window, doubling, full_sweep, kiefer_wolfowitz, ternary
from towpath.lab.tuning.selection import Candidate, Excluded, Selection, select

__all__ = [
    "Candidate",
    "Excluded",
    "Posterior",
    "SearchResult",
    "Selection",
    "control_window",
    "doubling",
    "full_sweep",
    "gp_ucb",
    "kiefer_wolfowitz",
    "posterior",
    "select",
    "ternary",
]
