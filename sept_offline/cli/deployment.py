"""`sept-offline export` and `sept-offline act`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sept_offline.cli.console import print_json, working
from sept_offline.cli.parameters import (
    DATASET,
    FOLDER,
    check_dataset,
    check_run,
    count_option,
    output_options,
    seed_option,
)


@click.command()
@click.argument("run", type=FOLDER)
@click.option("-o", "--out", type=FOLDER, required=True, help="Output folder, e.g. agent.onnx.")
@click.option(
    "--numpy", "as_numpy", is_flag=True, help="Write weights and code that require only NumPy."
)
@click.option(
    "--verify", type=DATASET, help="Dataset whose observations are used to compare actions."
)
@count_option("--observations", default=10_000, help="Number of observations to compare on.")
@seed_option
@output_options
def export(
    run: Path,
    out: Path,
    as_numpy: bool,
    verify: str | None,
    observations: int,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the agent in RUN as ONNX graphs, or for NumPy only.

    The folder also contains a manifest. The export is verified to take the same actions as the
    agent on recorded observations, or on random ones from the training range; otherwise nothing is
    written.

    \b
    Example:
      sept-offline export runs/nav -o agent.onnx --verify nav.h5
    """
    check_run(run)
    if verify is not None:
        check_dataset(verify)
    from sept_offline.tools.deploy import export as write

    form = "numpy" if as_numpy else "onnx"
    with working(f"writing {out} and comparing its actions", quiet):
        done = write(run, out, form, verify, observations, seed)
    files = list(done.manifest["files"])
    if as_json:
        print_json(
            {
                "path": str(done.path),
                "form": form,
                "files": files,
                "method": done.manifest["method"],
                "verified": done.manifest["verified"],
            }
        )
        return
    click.echo(f"{done.path}: {', '.join(files)}")
    source = "recorded observations" if verify else "observations within the training range"
    ties = f"; {done.verified.ties} ties resolved differently" if done.verified.ties else ""
    click.echo(f"same actions as the agent on {done.verified.observations:,} {source}{ties}")


@click.command()
@click.argument("run", type=FOLDER)
@seed_option
def act(run: Path, seed: int) -> None:
    """Run the agent in RUN on observations from standard input.

    Each line of input and output is one JSON object.

    \b
    In:   {"episode": "a", "observation": [0.1, 0.2], "mask": [true, false]}
          {"episode": "a", "end": true}
    Out:  {"episode": "a", "action": 0, "phase": "control", "latent": [0.3], …}
          {"episode": "a", "error": "…"}
    Optional: "mask", for continuous actions "bounds", and "seed" in the first line of an
    episode. Lines of different episodes may be interleaved.

    \b
    Example:
      sept-offline act runs/nav
    """
    check_run(run)
    from sept_offline.agent import load_agent
    from sept_offline.tools.deploy import Lines

    lines = Lines(load_agent(run), seed)
    for answer in lines.serve(sys.stdin.buffer):
        click.echo(answer)
        sys.stdout.flush()
