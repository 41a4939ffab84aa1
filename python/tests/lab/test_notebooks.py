"""The notebooks of docs/lab: their cells run without Jupyter, and print what the committed outputs say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DIRECTORY = Path(__file__).parents[3] / "docs" / "lab"
NOTEBOOKS = sorted(DIRECTORY.glob("*.ipynb"))
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
    environment = os.environ | {"MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S, cwd=DIRECTORY, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(f"{MARK}\n")[:-1] == [printed(cell) for cell in cells]
