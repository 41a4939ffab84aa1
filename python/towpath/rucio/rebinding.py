"""Installs the sorter in Rucio's REST server.

Rucio has no extension point for sorters, so its function `sort_replicas` is replaced in the modules that import it. Because this
depends on Rucio's internals, `build` raises `Unsupported` for an untested version of Rucio and for a different signature of the
function.
"""

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from towpath import alto
from towpath.rucio.official import Missing
from towpath.rucio.sorter import Settings, Sorter

# Major versions of Rucio that this module is tested with.
SUPPORTED_VERSIONS = (38, 39, 40, 41)

# The modules that bind `sort_replicas`. The option `endpoints` of rucio.cfg decides which of `VIEWS` are loaded.
CORE = "rucio.core.replica_sorter"
VIEWS = ("rucio.web.rest.flaskapi.v1.replicas", "rucio.web.rest.flaskapi.v1.redirect")
FUNCTION = "sort_replicas"
PARAMETERS = ("dictreplica", "client_location", "selection")


class Unsupported(Exception):
    """The installed Rucio is not supported, or its configuration loads none of `VIEWS`."""


def check(version: str, original: Callable[..., Any]) -> None:
    """Raises `Unsupported` unless the major version is in `SUPPORTED_VERSIONS` and `original` takes `PARAMETERS`."""
    supported = f"{SUPPORTED_VERSIONS[0]} to {SUPPORTED_VERSIONS[-1]}"
    advice = "serve Rucio's own rucio.web.rest.main:application, or install a newer towpath"
    major = version.partition(".")[0]
    if not major.isdecimal() or int(major) not in SUPPORTED_VERSIONS:
        raise Unsupported(f"towpath.rucio.wsgi supports Rucio {supported}, not {version}: {advice}")
    parameters = tuple(inspect.signature(original).parameters)
    if parameters != PARAMETERS:
        raise Unsupported(f"{CORE}.{FUNCTION} of Rucio {version} takes {', '.join(parameters)}: {advice}")


def rebind(sorter: Sorter, original: Callable[..., Any]) -> None:
    """Replaces `original` with `sorter` in `CORE` and in the loaded modules of `VIEWS`.

    Raises `Unsupported`, before it changes any module, if none of `VIEWS` is loaded or if a module binds another function.
    """
    views = [sys.modules[name] for name in VIEWS if name in sys.modules]
    if not views:
        raise Unsupported(f"neither {' nor '.join(VIEWS)} is loaded: check the option endpoints in rucio.cfg")
    modules = [sys.modules[CORE], *views]
    for module in modules:
        if getattr(module, FUNCTION, None) is not original:
            raise Unsupported(f"{module.__name__} does not have {FUNCTION} of {CORE}")
    for module in modules:
        setattr(module, FUNCTION, sorter)


def build() -> Any:
    """Returns Rucio's WSGI application (PEP 3333) with `Sorter` installed.

    Raises `Missing` if Rucio's server cannot be imported, `Unsupported` if the sorter cannot be installed, and `ValueError` if the
    settings are invalid.
    """
    try:
        from rucio.common.config import config_get
        from rucio.common.exception import SortingAlgorithmNotSupported
        from rucio.core.replica_sorter import sort_replicas
        from rucio.version import version_string
        from rucio.web.rest.main import application as rest
    except ImportError as error:
        raise Missing(f"Rucio's server is not installed here: pip install rucio ({error})") from error

    def option(name: str) -> str | None:
        value: str | None = config_get("alto", name, raise_exception=False, default=None, check_config_table=False)
        return value

    check(version_string(), sort_replicas)
    sorter = Sorter(sort_replicas, Settings.read(os.environ, option), alto.Client, SortingAlgorithmNotSupported)
    rebind(sorter, sort_replicas)
    return rest
