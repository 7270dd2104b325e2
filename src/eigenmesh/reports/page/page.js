"use strict";
(() => {
  const data = JSON.parse(document.getElementById("points").textContent);
  if (!data) return;
  const NS = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const LEFT = 56, RIGHT = 12, TOP = 10, BOTTOM = 44;
  // A unit is a pixel, so that words keep their size on a phone.
  let W = 640, H = 440;
  const measure = () => {
    W = Math.min(Math.max(byId("plot").clientWidth, 280), 736);
    H = Math.round(W * 0.62) + 60;
  };
  const HUES = 10, SHAPES = 4;

  const make = (name, attributes = {}, text = "") => {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text) node.textContent = text;
    return node;
  };
  const tag = (name, text = "") => {
    const node = document.createElement(name);
    node.textContent = text;
    return node;
  };
  const short = (value) =>
    value === 0 ? "0" : Math.abs(value) >= 1e4 || Math.abs(value) < 1e-3 ? value.toExponential(1) : String(+value.toPrecision(3));

  // Four shapes of about one area, so that hues need not be told apart; many points are small.
  const r = data.points[0].length > 1500 ? 2 : 3;
  const shapes = [
    (x, y) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
    (x, y) => `M${x - 0.9 * r} ${y - 0.9 * r}h${1.8 * r}v${1.8 * r}h${-1.8 * r}z`,
    (x, y) => `M${x} ${y - 1.2 * r}l${1.2 * r} ${2.1 * r}h${-2.4 * r}z`,
    (x, y) => `M${x} ${y - 1.3 * r}l${1.3 * r} ${1.3 * r}l${-1.3 * r} ${1.3 * r}l${-1.3 * r} ${-1.3 * r}z`,
  ];

  // Groups by what they are coloured by; beyond forty the largest are named and the rest is grey.
  const grouped = (by) => {
    const n = data.points[0].length;
    const own = data.groups[by] || { names: ["all"], codes: new Array(n).fill(0) };
    const members = own.names.map(() => []);
    own.codes.forEach((code, i) => members[code].push(i));
    const order = own.names.map((_, i) => i);
    const few = own.names.length <= HUES * SHAPES;
    if (!few) order.sort((a, b) => members[b].length - members[a].length);
    return order.map((i, place) => ({
      name: own.names[i],
      rows: members[i],
      hue: few ? place % HUES : place < HUES - 1 ? place : "other",
      // A pair of hue and shape is met once: neighbours differ in both.
      shape: few ? (place + Math.floor(place / (2 * HUES))) % SHAPES : 0,
    }));
  };

  const axisOf = (id) => (byId(id) ? Number(byId(id).value) - 1 : null);
  const state = () => {
    const x = axisOf("x-component") ?? 0;
    const by = byId("colour-by") ? byId("colour-by").value : "";
    return { x, y: axisOf("y-component"), by, strong: byId("strong") ? byId("strong").value : "" };
  };

  const ticks = (low, high) => {
    const rough = (high - low) / 6 || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const marks = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) marks.push(Math.abs(v) < step * 1e-9 ? 0 : v);
    return marks;
  };
  const toX = (share) => LEFT + share * (W - LEFT - RIGHT);
  const toY = (share) => H - BOTTOM - share * (H - BOTTOM - TOP);

  const axes = (svg, s) => {
    for (const v of ticks(data.low[s.x], data.high[s.x])) {
      const x = toX((v - data.low[s.x]) / (data.high[s.x] - data.low[s.x] || 1));
      svg.append(make("line", { x1: x, x2: x, y1: TOP, y2: H - BOTTOM, class: "grid" }));
      svg.append(make("text", { x, y: H - BOTTOM + 17, "text-anchor": "middle" }, short(v)));
    }
    svg.append(make("text", { x: (W + LEFT) / 2, y: H - 6, "text-anchor": "middle", class: "dim" }, `component ${s.x + 1}`));
    if (s.y === null) return;
    for (const v of ticks(data.low[s.y], data.high[s.y])) {
      const y = toY((v - data.low[s.y]) / (data.high[s.y] - data.low[s.y] || 1));
      svg.append(make("line", { x1: LEFT, x2: W - RIGHT, y1: y, y2: y, class: "grid" }));
      svg.append(make("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, short(v)));
    }
    svg.append(make("text", { transform: `translate(14 ${(H - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle", class: "dim" }, `component ${s.y + 1}`));
  };

  const placeOf = (s, i, place, count) => {
    const x = toX(data.points[s.x][i] / data.fine);
    // A single component has no second axis: groups are strips, and rows are spread in them.
    const spread = ((i * 0.6180339887) % 1) * 0.7 + 0.15;
    const y = s.y === null ? toY((place + spread) / count) : toY(data.points[s.y][i] / data.fine);
    return [Math.round(x * 10) / 10, Math.round(y * 10) / 10];
  };

  const legendEntry = (name, count, hue, shape) => {
    const item = document.createElement("li");
    const swatch = make("svg", { viewBox: "-5 -5 10 10", "aria-hidden": "true" });
    swatch.append(make("path", { d: shapes[shape](0, 0), class: `k${hue}` }));
    item.append(swatch, tag("span", `${name} (${count.toLocaleString("en")})`));
    return item;
  };

  const legend = (groups) => {
    const named = groups.filter((g) => g.hue !== "other");
    const others = groups.filter((g) => g.hue === "other");
    const entries = named.map((g) => legendEntry(g.name, g.rows.length, g.hue, g.shape));
    const rest = others.reduce((sum, g) => sum + g.rows.length, 0);
    if (others.length) entries.push(legendEntry(`${others.length.toLocaleString("en")} others`, rest, "other", 0));
    byId("legend").replaceChildren(...entries);
  };

  const valueAt = (component, i) =>
    data.low[component] + (data.points[component][i] / data.fine) * (data.high[component] - data.low[component]);
  const moments = (rows, component) => {
    const values = rows.map((i) => valueAt(component, i));
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const spread = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length);
    return `${short(mean)} ± ${short(spread)}`;
  };

  const table = (groups, s) => {
    const components = s.y === null ? [s.x] : [s.x, s.y];
    const head = document.createElement("tr");
    for (const words of ["group", "points", ...components.map((c) => `component ${c + 1}: mean ± spread`)]) {
      const cell = tag("th", words);
      cell.scope = "col";
      head.append(cell);
    }
    const body = groups.filter((g) => g.rows.length).map((g) => {
      const row = document.createElement("tr");
      const first = tag("th", g.name);
      first.scope = "row";
      row.append(first, tag("td", g.rows.length.toLocaleString("en")), ...components.map((c) => tag("td", moments(g.rows, c))));
      return row;
    });
    const [thead, tbody, whole] = ["thead", "tbody", "table"].map((name) => document.createElement(name));
    thead.append(head);
    tbody.append(...body);
    whole.append(tag("caption", "Where each group lies"), thead, tbody);
    byId("plot-table").replaceChildren(whole);
  };

  const draw = () => {
    measure();
    const s = state();
    const groups = grouped(s.by);
    const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
    const up = s.y === null ? "one strip a group" : `component ${s.y + 1} up`;
    const words = `Component ${s.x + 1} across, ${up}; ${data.points[0].length.toLocaleString("en")} points` +
      (s.by ? ` coloured by ${s.by}, ${groups.length.toLocaleString("en")} group${groups.length === 1 ? "" : "s"}.` : ".");
    svg.setAttribute("aria-label", words);
    axes(svg, s);
    const strong = groups.findIndex((g) => g.name === s.strong);
    const layers = groups.map((g, place) => {
      const d = g.rows.map((i) => shapes[g.shape](...placeOf(s, i, place, groups.length))).join("");
      const faint = strong >= 0 && place !== strong;
      const hue = strong === place && g.hue === "other" ? 0 : g.hue;
      return make("path", { d, class: `points k${hue}${faint ? " faint" : ""}` });
    });
    if (strong >= 0) layers.push(layers.splice(strong, 1)[0]);
    svg.append(...layers);
    byId("plot").replaceChildren(svg);
    byId("plot-status").textContent = words;
    for (const axis of ["x", "y"]) {
      const slider = byId(`${axis}-component`);
      if (slider) byId(`${axis}-output`).textContent = slider.value;
    }
    legend(groups);
    table(groups, s);
  };

  const choices = () => {
    const by = byId("colour-by");
    if (!by) return;
    const all = tag("option", "all alike");
    all.value = "";
    const names = grouped(by.value).map((g) => {
      const option = tag("option", g.name);
      option.value = g.name;
      return option;
    });
    byId("strong").replaceChildren(all, ...names);
  };

  for (const id of ["x-component", "y-component", "strong"]) {
    if (byId(id)) byId(id).addEventListener("input", draw);
  }
  if (byId("colour-by")) byId("colour-by").addEventListener("input", () => { choices(); draw(); });
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(draw, 100);
  });
  choices();
  draw();
})();
