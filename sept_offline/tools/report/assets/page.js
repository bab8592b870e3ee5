// The page's own behaviour: unpack Plotly, draw the charts, follow light and dark, switch methods.
"use strict";

(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const charts = read("charts");
  const elements = [...document.querySelectorAll("[data-chart]")];

  // A colour written as var(--name) is what the style sheet says just now; text never is one.
  const TOKEN = /^var\((--[a-z]+)\)$/;
  const COLOURED = /color$/;
  const colour = (token) => getComputedStyle(document.documentElement).getPropertyValue(token).trim();

  const tokens = (value, path, found) => {
    if (typeof value === "string") {
      const match = COLOURED.test(path) && TOKEN.exec(value);
      if (match) found.push([path, match[1]]);
    } else if (Array.isArray(value)) {
      value.forEach((one, place) => tokens(one, `${path}[${place}]`, found));
    } else if (value && typeof value === "object") {
      for (const [key, one] of Object.entries(value)) tokens(one, path ? `${path}.${key}` : key, found);
    }
    return found;
  };

  const filled = (value, key = "") => {
    if (typeof value === "string") {
      const match = COLOURED.test(key) && TOKEN.exec(value);
      return match ? colour(match[1]) : value;
    }
    if (Array.isArray(value)) return value.map((one) => filled(one));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, filled(one, name)]));
    }
    return value;
  };

  const unpack = async () => {
    const packed = document.getElementById("plotly");
    if (!packed.textContent) return false;
    const bytes = Uint8Array.from(atob(packed.textContent), (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    packed.remove();
    return true;
  };

  const draw = async () => {
    // Only these buttons: none that would send a chart anywhere.
    const options = {
      responsive: true,
      displaylogo: false,
      showSendToCloud: false,
      showEditInChartStudio: false,
      plotlyServerURL: "",
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    };
    for (const element of elements) {
      const figure = filled(charts[element.dataset.chart]);
      try {
        await Plotly.newPlot(element, figure.data, figure.layout, options);
      } catch (error) {
        element.textContent = "This chart could not be drawn.";
        console.error(error);
      }
      element.style.minHeight = "";
      await new Promise((done) => setTimeout(done)); // the page answers while others are drawn
    }
    document.documentElement.dataset.drawn = String(elements.length);
  };

  const recolour = () => {
    for (const element of elements) {
      if (!element.data) continue;
      const figure = charts[element.dataset.chart];
      const layout = Object.fromEntries(tokens(figure.layout, "", []).map(([path, token]) => [path, colour(token)]));
      const traces = {};
      figure.data.forEach((trace, place) => {
        for (const [path, token] of tokens(trace, "", [])) {
          (traces[path] ??= { places: [], values: [] }).places.push(place);
          traces[path].values.push(colour(token));
        }
      });
      for (const [path, { places, values }] of Object.entries(traces)) {
        Plotly.restyle(element, { [path]: values }, places);
      }
      Plotly.relayout(element, layout);
    }
    document.dispatchEvent(new Event("themed"));
  };

  // Light or dark: what was chosen last, else what the system says.
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("theme", theme); } catch { /* not allowed: forgotten */ } };
  const show = (theme) => { root.dataset.theme = theme; recolour(); };
  root.dataset.theme = remembered() ?? (system.matches ? "dark" : "light");
  system.addEventListener("change", (event) => { if (!remembered()) show(event.matches ? "dark" : "light"); });
  document.getElementById("theme").addEventListener("click", () => {
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    remember(theme);
    show(theme);
  });
  // On paper: light, and every table open.
  let before = null, closed = [];
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
    show("light");
  });
  window.addEventListener("afterprint", () => {
    for (const one of closed) one.open = false;
    if (before) show(before);
  });

  // A switch shows or hides a method in every chart.
  for (const button of document.querySelectorAll(".method")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      for (const element of elements) {
        const own = (element.data ?? []).flatMap((trace, place) => trace.meta?.method === button.dataset.method ? [place] : []);
        if (own.length) Plotly.restyle(element, { visible: on ? true : "legendonly" }, own);
      }
    });
  }
  for (const dot of document.querySelectorAll(".dot")) dot.style.background ||= "var(--ink)";

  for (const element of document.querySelectorAll("[data-player]")) {
    try {
      new EpisodePlayer(element, read("players")[Number(element.dataset.player)]);
    } catch (error) {
      element.querySelector(".readout").textContent = "These episodes could not be drawn.";
      console.error(error);
    }
  }
  const failed = () => {
    for (const element of elements) {
      element.style.minHeight = "";
      element.textContent = "This browser cannot draw the charts; one of 2023 or later can.";
    }
  };
  if (typeof DecompressionStream === "undefined") failed();
  else unpack().then((there) => there && draw()).catch((error) => { failed(); throw error; });
})();
