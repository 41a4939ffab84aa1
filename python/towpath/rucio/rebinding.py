"""Puts the sorter into Rucio's REST server.

Rucio has no place for further sorters, so its function `sort_replicas` is replaced in the modules that have it. That reaches
into Rucio, and so nothing starts with a version that was not tried, or where the function is not as it was.
"""

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from towpath import alto
from towpath.rucio.official import Missing
from towpath.rucio.sorter import Settings, Sorter

# Major versions against which this was tried.
SUPPORTED_VERSIONS = (38, 39, 40, 41)

# All that have `sort_replicas`; of the last two those are loaded which the option `endpoints` of rucio.cfg names.
CORE = "rucio.core.replica_sorter"
VIEWS = ("rucio.web.rest.flaskapi.v1.replicas", "rucio.web.rest.flaskapi.v1.redirect")
FUNCTION = "sort_replicas"
PARAMETERS = ("dictreplica", "client_location", "selection")


class Unsupported(Exception):
    """This is not the Rucio that we know."""


def check(version: str, original: Callable[..., Any]) -> None:
    """Refuses a Rucio of which nobody knows whether this works with it."""
    known = f"{SUPPORTED_VERSIONS[0]} to {SUPPORTED_VERSIONS[-1]}"
    advice = "serve rucio.web.rest.main:application, which is Rucio's own, or look for a newer towpath"
    major = version.partition(".")[0]
    if not major.isdecimal() or int(major) not in SUPPORTED_VERSIONS:
        raise Unsupported(f"towpath.rucio.wsgi knows Rucio {known}, and this is {version}: {advice}")
    parameters = tuple(inspect.signature(original).parameters)
    if parameters != PARAMETERS:
        raise Unsupported(f"{CORE}.{FUNCTION} of this Rucio {version} takes {', '.join(parameters)}: {advice}")


def rebind(sorter: Sorter, original: Callable[..., Any]) -> None:
    """Puts `sorter` where Rucio has `original`."""
    views = [sys.modules[name] for name in VIEWS if name in sys.modules]
    if not views:
        raise Unsupported(f"neither {' nor '.join(VIEWS)} is served here: see endpoints in rucio.cfg")
    modules = [sys.modules[CORE], *views]
    for module in modules:
        if getattr(module, FUNCTION, None) is not original:
            raise Unsupported(f"{module.__name__} does not have {FUNCTION} of {CORE}")
    for module in modules:
        setattr(module, FUNCTION, sorter)


def build() -> Any:
    """Rucio's application (PEP 3333), in which replicas are sorted by `Sorter`, too."""
    try:
        from rucio.common.config import config_get
        from rucio.common.exception import SortingAlgorithmNotSupported
        from rucio.core.replica_sorter import sort_replicas
        from rucio.version import version_string
        from rucio.web.rest.main import application as rest
    except ImportError as error:
        raise Missing(f"Rucio's server is not installed here: pip install rucio ({error})") from error

    def option(name: str) -> str | None:
        told: str | None = config_get("alto", name, raise_exception=False, default=None, check_config_table=False)
        return told

    check(version_string(), sort_replicas)
    sorter = Sorter(sort_replicas, Settings.read(os.environ, option), alto.Client, SortingAlgorithmNotSupported)
    rebind(sorter, sort_replicas)
    return rest
