"""Runs the notebooks and keeps their outputs: python docs/notebooks/build.py [NAME…]

Each runs in an empty folder of its own. What differs from one run to the next without meaning
anything (counts, times, versions, paths) is left out, so that a diff shows what has changed.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).parent
SECONDS = 1800
"""After which a cell is given up."""


def run(
    path: Path,
    parameters: Mapping[str, Any] | None = None,
    ask: str = "",
    kernel: AsyncKernelManager | None = None,
) -> NotebookNode:
    """The notebook with outputs; `parameters` replace those of its cell with that tag.

    `ask` is one more cell at the end. A `kernel` that is given stays alive, and the next notebook
    finds it without variables; by default each notebook starts its own.
    """
    notebook = nbformat.read(path, as_version=4)
    if parameters is not None:
        cell = parameters_cell(notebook)
        if names_of(cell) != set(parameters):
            raise ValueError(f"{path.name} has the parameters {sorted(names_of(cell))}.")
        cell.source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    if ask:
        notebook.cells.append(nbformat.v4.new_code_cell(ask))
    with tempfile.TemporaryDirectory() as folder:
        if kernel is not None:
            empty = f"import os\nos.chdir({folder!r})\n%reset -f"
            notebook.cells.insert(0, nbformat.v4.new_code_cell(empty))
        # nothing of the reader's own settings, and nothing left behind in their home
        own = dict.fromkeys(("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"), folder)
        client = NotebookClient(
            notebook,
            km=kernel,
            timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            record_timing=False,
            # or where one output ends and the next begins would depend on how busy the machine is
            coalesce_streams=True,
        )
        client.execute(env={**os.environ, **own, "OMP_NUM_THREADS": "1"})
    if kernel is not None:
        del notebook.cells[0]
    return notebook


def parameters_cell(notebook: NotebookNode) -> NotebookNode:
    """The one cell with that tag."""
    (cell,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", ()))
    return cell


def names_of(cell: NotebookNode) -> set[str]:
    """The names that a cell's assignments give values to."""
    return {
        target.id
        for node in ast.parse(cell.source).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def digest(notebook: NotebookNode) -> str:
    """Of the code, by which outputs of another version of it are known."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(code).encode()).hexdigest()[:16]


def tidy(notebook: NotebookNode) -> None:
    """Leave out what says nothing about the run."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = NotebookNode(
        kernelspec=kernel, language_info={"name": "python"}, built_from=digest(notebook)
    )
    for cell in notebook.cells:
        cell.metadata = NotebookNode({k: v for k, v in cell.metadata.items() if k == "tags"})
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = None


def main() -> None:
    """Run the notebooks that are named, or all."""
    for name in sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.ipynb")):
        path = HERE / f"{name}.ipynb"
        notebook = run(path)
        tidy(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
