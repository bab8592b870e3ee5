"""The figures of a bench, drawn from its four tables; nothing is trained for them."""

from sept_offline.tools.bench.figures.catalogue import Drawn, draw_figures
from sept_offline.tools.bench.figures.paper import INSTALL, can_draw

__all__ = ["INSTALL", "Drawn", "can_draw", "draw_figures"]
