"""A schematic of one test episode along its time axis: probe, encode, control.

python benchmarks/pictures/episode.py -o docs/images/idea-episode.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
from look import CONTROL, GREY, INK, PALE, PROBE, save
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

PROBED, SHOWN = 3, 9
"""Steps of the probe, and steps drawn in all."""
STATES, ACTIONS, LATENT = 0.0, 1.15, -1.75


def box(
    panel: Axes, centre: tuple[float, float], size: tuple[float, float], **look: object
) -> None:
    """A rounded box about a point."""
    corner = (centre[0] - size[0] / 2, centre[1] - size[1] / 2)
    style = "round,pad=0,rounding_size=0.12"
    panel.add_patch(FancyBboxPatch(corner, *size, boxstyle=style, lw=1.2, **look))


def arrow(
    panel: Axes, start: tuple[float, float], end: tuple[float, float], **look: object
) -> None:
    """From one point to another."""
    style = {"arrowstyle": "-|>", "color": GREY, "lw": 1.1, "shrinkA": 0, "shrinkB": 0} | look
    panel.annotate("", end, start, arrowprops=style)


def main() -> None:
    """States in a row, actions above them, the encoder below."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    figure, panel = plt.subplots(figsize=(9, 3.9))
    panel.set(xlim=(-0.7, SHOWN + 0.9), ylim=(-2.75, 2.45), aspect="auto")
    panel.axis("off")

    panel.axvspan(-0.5, PROBED - 0.22, 0.3, 0.86, color=PROBE, alpha=0.13, lw=0)
    panel.axvspan(PROBED - 0.22, SHOWN + 0.8, 0.3, 0.86, color=CONTROL, alpha=0.09, lw=0)
    for step in range(SHOWN):
        colour = PROBE if step < PROBED else CONTROL
        box(panel, (step, STATES), (0.46, 0.6), facecolor="white", edgecolor=INK)
        panel.text(step, STATES, f"$s_{step}$", ha="center", va="center")
        chosen = {"boxstyle": "circle,pad=0.22", "fc": colour, "ec": "none"}
        ink = INK if step < PROBED else "white"
        where = {"ha": "center", "va": "center"}
        panel.text(step + 0.5, ACTIONS, f"$a_{step}$", color=ink, bbox=chosen, **where)
        arrow(panel, (step + 0.12, STATES + 0.32), (step + 0.38, ACTIONS - 0.3), color=colour)
        arrow(panel, (step + 0.25, STATES), (step + 0.75, STATES))
    panel.text(SHOWN + 0.05, STATES, "…", ha="center", va="center", fontsize=14)

    panel.text((PROBED - 1) / 2, 2.0, "probe: $\\pi(a\\,|\\,s)$", ha="center", weight="bold")
    title = "control: argmax$_a$ $Q([s, \\hat z], a)$"
    panel.text((PROBED + SHOWN) / 2, 2.0, title, ha="center", weight="bold")

    middle, right = PROBED / 2 - 0.1, PROBED - 0.05
    box(panel, (middle, LATENT), (2.2, 0.7), facecolor=PALE, edgecolor=INK)
    panel.text(middle, LATENT, "encode  $q(z\\,|\\,$segment$)$", ha="center", va="center")
    bracket = ([-0.25, -0.25, right, right], [-0.45, -0.75, -0.75, -0.45])
    panel.plot(*bracket, color=INK, lw=1.1)
    arrow(panel, (middle, -0.75), (middle, LATENT + 0.37), color=INK)

    first = PROBED + 0.15
    box(panel, (first + 0.1, LATENT), (0.5, 0.7), facecolor=CONTROL, edgecolor="none")
    panel.text(first + 0.1, LATENT, "$\\hat z$", ha="center", va="center", color="white", size=13)
    arrow(panel, (middle + 1.12, LATENT), (first - 0.17, LATENT), color=INK)
    panel.plot([first + 0.35, SHOWN + 0.5], [LATENT, LATENT], color=CONTROL, lw=1.6)
    arrow(panel, (first, LATENT + 0.36), (first, -0.34), color=CONTROL, lw=1)
    for step in range(PROBED + 1, SHOWN):
        arrow(panel, (step, LATENT), (step, -0.34), color=CONTROL, lw=1)
    panel.text(SHOWN + 0.5, -2.15, "the same $\\hat z$ beside every state", ha="right", size=9)
    arrow(panel, (-0.5, -2.62), (SHOWN + 0.8, -2.62))
    panel.text(-0.5, -2.5, "time", size=9, color=INK)
    figure.tight_layout(pad=0.3)
    save(figure, arguments.out)


if __name__ == "__main__":
    main()
