"""The notebooks of the documentation: their cells run without Jupyter, and print what the committed outputs say."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))
MARK = "end of a cell"
DEADLINE_S = 300


def printed(cell):
    """Returns the text that a cell printed when the notebook was written."""
    return "".join("".join(output["text"]) for output in cell["outputs"] if output.get("name") == "stdout")


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_gives_its_outputs(notebook):
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    # Commands of Jupyter, which only display figures, are left out.
    sources = ["".join(line for line in cell["source"] if not line.startswith("%")) for cell in cells]
    script = "".join(f"{source}\nprint({MARK!r})\n" for source in sources)
    environment = os.environ | {"MPLBACKEND": "agg", "TOWPATH_PROGRAM": os.environ["TOWPATH_BINARY"]}
    pipe, command = subprocess.PIPE, [sys.executable, "-c", script]
    # A group of its own, which ends with what the cells have started.
    running = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=notebook.parent, env=environment, start_new_session=True)
    try:
        stdout, stderr = running.communicate(timeout=DEADLINE_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, stderr
    assert stdout.split(f"{MARK}\n")[:-1] == [printed(cell) for cell in cells]
