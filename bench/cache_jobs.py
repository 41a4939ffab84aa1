"""The jobs of the suite `cache`."""

from __future__ import annotations

import cache_copies
import cache_hang
import cache_herd
import cache_memory
import cache_sparse
import cache_warm
from settings import Job

JOBS = {
    "sparse": Job(cache_sparse.sparse, 15),
    "sequential": Job(cache_copies.sequential, 60),
    "warm": Job(cache_warm.warm, 15),
    "herd": Job(cache_herd.herd, 15),
    "hang": Job(cache_hang.hang, 15),
    "leaf": Job(cache_copies.leaf, 60),
    "conditions": Job(cache_warm.conditions, 10),
    "memory": Job(cache_memory.memory, 15),
}
