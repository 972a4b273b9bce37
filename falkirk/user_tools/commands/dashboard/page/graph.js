// The graph: inputs, regions as hulls around their steps, sinks, and on each edge its three frontiers as bars.

import { Component, h } from "./vendor/preact.mjs";
import htm from "./vendor/htm.module.js";
import { Graph, layout } from "./vendor/dagre.esm.js";
import { count, shorten } from "./format.js";

const html = htm.bind(h);
const BARS = 96; // the width of the bars on an edge
const LABEL_MAX = 26;
const HEIGHT = 44; // of a node
const GAP = 26; // between two steps of a unit
const PAD = 12; // between a hull and its steps
const TITLE = 28; // above them
const TITLE_MAX = 34;
const WINDOW_S = 30; // bars show how far each frontier has come within this time
const MARGIN = 0.3;

// -- where everything is ---------------------------------------------------------------------------------------------

const widthOf = (label) => Math.max(96, Math.min(LABEL_MAX, label.length) * 7.7 + 44);

// Return the boxes that are laid out: a unit is one box, because its steps are a chain and their places inside follow.
function boxesOf(graph, across) {
  const boxes = new Map();
  for (const node of graph.nodes) {
    if (!node.unit) boxes.set(node.id, { width: widthOf(node.label), height: HEIGHT });
  }
  for (const unit of graph.units) {
    const steps = graph.nodes.filter((n) => n.unit === unit.name).map((n) => ({ ...n, width: widthOf(n.label), height: HEIGHT }));
    const along = steps.reduce((sum, s) => sum + (across ? s.width : s.height), (steps.length - 1) * GAP);
    const most = Math.max(0, ...steps.map((s) => (across ? s.height : s.width)));
    const [width, height] = across ? [along, most] : [most, along];
    const title = steps.length === 1 && steps[0].label === unit.name ? unit.every : `${unit.name} · ${unit.every}`;
    const room = Math.max(width, Math.min(title.length, TITLE_MAX) * 6.1 + 4);
    boxes.set(`unit:${unit.name}`, { unit: { ...unit, title }, steps, inner: width, width: room + 2 * PAD, height: height + PAD + TITLE });
  }
  return boxes;
}

// Return the boxes that hang together, as lists of names: each list is laid out by itself, which takes much less time.
function components(boxes, edges) {
  const near = new Map([...boxes.keys()].map((name) => [name, []]));
  for (const { from, to } of edges) {
    near.get(from).push(to);
    near.get(to).push(from);
  }
  const seen = new Set();
  const found = [];
  for (const first of boxes.keys()) {
    if (seen.has(first)) continue;
    const names = [first];
    seen.add(first);
    for (const name of names) {
      for (const other of near.get(name)) {
        if (!seen.has(other)) {
          seen.add(other);
          names.push(other);
        }
      }
    }
    found.push(names);
  }
  return found;
}

// Put rectangles into columns, so that the whole has about this ratio of width to height. Returns its size.
function pack(laid, ratio) {
  const area = laid.reduce((sum, each) => sum + each.width * each.height, 0);
  const most = Math.max(0, Math.sqrt(area / ratio), ...laid.map((each) => each.height));
  const size = { width: 0, height: 0 };
  let [left, top] = [0, 0];
  for (const each of laid) {
    if (top > 0 && top + each.height > most) [left, top] = [size.width, 0];
    Object.assign(each, { left, top });
    top += each.height;
    size.width = Math.max(size.width, left + each.width);
    size.height = Math.max(size.height, top);
  }
  return size;
}

// Return the places of all nodes, edges and hulls. Args: direction: "LR" or "TB".
export function place(graph, direction) {
  const across = direction === "LR";
  const boxes = boxesOf(graph, across);
  const owner = new Map(graph.nodes.map((node) => [node.id, node.unit ? `unit:${node.unit}` : node.id]));
  const between = graph.edges
    .filter((edge) => edge.kind !== "inside")
    .map((edge) => ({ id: edge.id, from: owner.get(edge.from), to: owner.get(edge.to) }));
  const routes = new Map();
  const laid = [];
  for (const names of components(boxes, between)) {
    const large = names.length > 60;
    const g = new Graph({ multigraph: true });
    g.setGraph({
      rankdir: direction, nodesep: 26, ranksep: 34, edgesep: 16, marginx: 20, marginy: 20,
      ranker: large ? "tight-tree" : "network-simplex",
    });
    for (const name of names) g.setNode(name, { width: boxes.get(name).width, height: boxes.get(name).height });
    for (const e of between) {
      if (g.hasNode(e.from)) g.setEdge(e.from, e.to, { width: BARS + 14, height: 34, labelpos: "c" }, e.id);
    }
    layout(g, { disableOptimalOrderHeuristic: large });
    laid.push({ g, names, width: g.graph().width, height: g.graph().height });
  }
  const size = pack(laid, across ? 1.7 : 0.7);
  for (const { g, names, left: dx, top: dy } of laid) {
    for (const name of names) Object.assign(boxes.get(name), { x: g.node(name).x + dx, y: g.node(name).y + dy });
    for (const e of between) {
      if (!g.hasNode(e.from)) continue;
      const { x, y, points } = g.edge(e.from, e.to, e.id);
      routes.set(e.id, { x: x + dx, y: y + dy, points: points.map((p) => ({ x: p.x + dx, y: p.y + dy })) });
    }
  }
  const nodes = graph.nodes.filter((node) => !node.unit).map((node) => ({ ...node, ...boxes.get(node.id) }));
  const hulls = [];
  for (const box of boxes.values()) {
    if (!box.unit) continue;
    const hull = { ...box.unit, left: box.x - box.width / 2, top: box.y - box.height / 2, width: box.width, height: box.height };
    hulls.push(hull);
    let [left, top] = [box.x - box.inner / 2, hull.top + TITLE];
    for (const step of box.steps) {
      nodes.push({ ...step, x: across ? left + step.width / 2 : box.x, y: top + HEIGHT / 2 });
      if (across) left += step.width + GAP;
      else top += HEIGHT + GAP;
    }
  }
  const at = new Map(nodes.map((node) => [node.id, node]));
  const edges = graph.edges.map((edge) => {
    if (edge.kind !== "inside") return { ...edge, ...routes.get(edge.id) };
    const [from, to] = [at.get(edge.from), at.get(edge.to)];
    const points = across
      ? [{ x: from.x + from.width / 2, y: from.y }, { x: to.x - to.width / 2, y: to.y }]
      : [{ x: from.x, y: from.y + HEIGHT / 2 }, { x: to.x, y: to.y - HEIGHT / 2 }];
    return { ...edge, points };
  });
  return { nodes, edges, hulls, ...size };
}

function curve(points) {
  const at = (p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`;
  const middle = (a, b) => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
  let path = `M${at(points[0])}`;
  for (let i = 1; i < points.length - 1; i += 1) path += `Q${at(points[i])} ${at(middle(points[i], points[i + 1]))}`;
  return `${path}L${at(points[points.length - 1])}`;
}

// -- how far each frontier has come ----------------------------------------------------------------------------------

// Frontiers are positions that grow without end. The bars show the last seconds: their left end is where the slowest
// frontier was WINDOW_S ago, and their right end is the end of the log.
const past = new Map();

export function noteFrontiers(look) {
  for (const [id, f] of Object.entries(look.edges || {})) {
    const seen = past.get(id) || [];
    const least = Math.min(f.saved, f.out, f.computed);
    while (seen.length && seen[0].at < look.at_s - WINDOW_S) seen.shift();
    if (seen.length && least < seen[seen.length - 1].least) seen.length = 0; // it was rolled back
    seen.push({ at: look.at_s, least });
    past.set(id, seen);
  }
}

export function shares(id, f) {
  const seen = past.get(id);
  const least = Math.min(f.saved, f.out, f.computed, ...(seen && seen.length ? [seen[0].least] : []));
  const most = Math.max(f.there, f.computed);
  const base = Math.max(0, least - MARGIN * (most - least)); // a frontier that lags is short, and not invisible
  const share = (n) => (most <= base ? 1 : Math.max(0, Math.min(1, (n - base) / (most - base))));
  return { computed: share(f.computed), out: share(f.out), saved: share(f.saved) };
}

export function inWords(f, of) {
  return `${count(f.there)} ${of} in the log, ${count(f.computed)} computed, ${count(f.out)} out, ${count(f.saved)} saved`;
}

// -- drawing ---------------------------------------------------------------------------------------------------------

const pressed = (action) => (event) => {
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    action();
  }
};

function Bars({ edge, f, selected, onSelect }) {
  const at = edge.x == null ? edge.points[Math.floor(edge.points.length / 2)] : edge;
  const share = f && shares(edge.id, f);
  const lane = (name, y) => html`
    <rect class="track" x="0" y=${y} width=${BARS} height="5" rx="2.5" />
    ${share && html`<rect class=${`bar ${name}`} x="0" y=${y} width=${BARS} height="5" rx="2.5"
      style=${{ transform: `scaleX(${share[name].toFixed(4)})` }} />`}`;
  const label = f ? inWords(f, edge.of) : "not known yet";
  return html`<g class=${`bars ${selected ? "selected" : ""}`} transform=${`translate(${at.x - BARS / 2},${at.y - 12})`}
      data-edge=${edge.id} role="button" tabindex="-1" aria-label=${`${edge.id}: ${label}`}
      onClick=${onSelect} onKeyDown=${pressed(onSelect)}>
    <title>${edge.id}: ${label}</title>
    <rect class="plate" x="-7" y="-6" width=${BARS + 14} height="34" rx="8" />
    ${lane("computed", 0)}${lane("out", 8)}${lane("saved", 16)}
  </g>`;
}

function Node({ node, unit, selected, focusable, onSelect }) {
  const state = unit && (unit.condition ? "failed" : unit.state);
  const detail = { input: "input", sink: "sink" }[node.kind] || state || "";
  const label = shorten(node.label, LABEL_MAX);
  return html`<g class=${`node ${node.kind} ${selected ? "selected" : ""}`} data-node=${node.id}
      transform=${`translate(${node.x - node.width / 2},${node.y - node.height / 2})`}
      role="button" tabindex=${focusable ? 0 : -1} aria-pressed=${!!selected} aria-label=${`${node.label}, ${detail}`}
      onClick=${onSelect} onKeyDown=${pressed(onSelect)}>
    <title>${node.label}</title>
    <rect width=${node.width} height=${node.height} rx=${node.kind === "step" ? 10 : 22} />
    ${unit && html`<circle class=${`dot ${state}`} cx="16" cy="17" r="4" />`}
    <text class="label" x=${unit ? 27 : 18} y="21">${label}</text>
    <text class="detail" x=${unit ? 27 : 18} y="35">${detail}</text>
  </g>`;
}

// The view: drag or pinch to move, Ctrl and the wheel or + and - to zoom, arrow keys to go from node to node.
export class GraphView extends Component {
  constructor(props) {
    super(props);
    this.state = { x: 0, y: 0, k: 1, fits: true };
    this.pointers = new Map();
  }

  componentDidMount() {
    this.props.onReady(this);
    this.resized = new ResizeObserver(() => this.fit());
    this.resized.observe(this.element);
    this.element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  componentWillUnmount() {
    this.resized.disconnect();
  }

  // A large graph takes time to draw, and the page is drawn each second.
  shouldComponentUpdate(props, state) {
    return state !== this.state || ["graph", "now", "look", "direction", "selected"].some((name) => props[name] !== this.props[name]);
  }

  placed() {
    const { graph, direction } = this.props;
    if (this.of !== graph || this.direction !== direction) {
      const began = performance.now();
      Object.assign(this, { of: graph, direction, found: place(graph, direction) });
      this.found.took_ms = performance.now() - began;
      this.setState({ fits: true });
      requestAnimationFrame(() => this.fit());
    }
    return this.found;
  }

  fit(force) {
    if (!this.element || (!this.state.fits && !force)) return;
    const box = this.element.getBoundingClientRect();
    if (!box.width) return;
    const { width, height } = this.found;
    // Small type can't be read: a large graph begins at its start instead, and is moved.
    const whole = Math.min(box.width / width, box.height / height);
    const k = Math.min(1.15, force ? whole : Math.max(whole, 0.5));
    const centred = (room, size) => (room - size * k) / 2;
    const first = this.found.nodes[0] || { x: 0, y: 0, width: 0, height: 0 };
    const x = width * k <= box.width ? centred(box.width, width) : Math.min(0, 60 - (first.x - first.width / 2) * k);
    const y = height * k <= box.height ? centred(box.height, height) : Math.min(0, box.height / 2 - first.y * k);
    this.setState({ k, x, y, fits: true });
  }

  zoom(factor, cx, cy) {
    const box = this.element.getBoundingClientRect();
    const [px, py] = [cx == null ? box.width / 2 : cx, cy == null ? box.height / 2 : cy];
    this.setState(({ x, y, k }) => {
      const to = Math.max(0.05, Math.min(3, k * factor));
      return { k: to, x: px - ((px - x) * to) / k, y: py - ((py - y) * to) / k, fits: false };
    });
  }

  wheel(event) {
    const box = this.element.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.setState(({ x }) => ({ x: x - (event.deltaX || event.deltaY), fits: false }));
    }
  }

  down(event) {
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = { x: event.clientX, y: event.clientY };
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const apart = (a) => Math.hypot(a.x - other.x, a.y - other.y);
      const box = this.element.getBoundingClientRect();
      const [cx, cy] = [(now.x + other.x) / 2 - box.left, (now.y + other.y) / 2 - box.top];
      if (apart(before) > 0) this.zoom(apart(now) / apart(before), cx, cy);
    } else if (event.buttons & 1) {
      this.setState(({ x, y }) => ({ x: x + now.x - before.x, y: y + now.y - before.y, fits: false }));
    }
    this.pointers.set(event.pointerId, now);
  }

  up(event) {
    this.pointers.delete(event.pointerId);
  }

  keys(event) {
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit(true);
    else if (arrows[event.key]) {
      event.preventDefault();
      this.step(arrows[event.key]);
    }
  }

  // Go to the nearest node in a direction.
  step([dx, dy]) {
    const from = this.found.nodes.find((n) => n.id === this.focused()) || this.found.nodes[0];
    let best = null;
    for (const node of this.found.nodes) {
      const [ox, oy] = [node.x - from.x, node.y - from.y];
      const [along, across] = [ox * dx + oy * dy, Math.abs(ox * dy) + Math.abs(oy * dx)];
      const cost = along + 2 * across;
      if (node.id !== from.id && along > 4 && (!best || cost < best.cost)) best = { cost, node };
    }
    if (best) this.show(best.node.id);
  }

  focused() {
    return this.focus || (this.found.nodes[0] || {}).id;
  }

  // Focus a node, and move it into the view.
  show(id) {
    const node = this.found.nodes.find((n) => n.id === id);
    if (!node) return;
    this.focus = id;
    const box = this.element.getBoundingClientRect();
    const { x, y, k } = this.state;
    const [px, py] = [node.x * k + x, node.y * k + y];
    const inside = px > 60 && px < box.width - 60 && py > 40 && py < box.height - 40;
    this.setState(inside ? {} : { x: box.width / 2 - node.x * k, y: box.height / 2 - node.y * k, fits: false }, () => {
      const found = this.element.querySelector(`[data-node="${CSS.escape(id)}"]`);
      if (found) found.focus({ preventScroll: true });
    });
  }

  render({ graph, now, look, selected, onSelect }, { x, y, k }) {
    const found = this.placed();
    const edges = (look && look.edges) || {};
    const units = (now && now.units) || {};
    const is = (type, id) => selected && selected.type === type && selected.id === id;
    const focused = this.focused();
    return html`<div class="canvas" tabindex="-1" ref=${(element) => { this.element = element || this.element; }} onKeyDown=${(e) => this.keys(e)} data-took-ms=${found.took_ms}
        onPointerDown=${(e) => this.down(e)} onPointerMove=${(e) => this.move(e)} onPointerUp=${(e) => this.up(e)}
        onPointerLeave=${(e) => this.up(e)} onPointerCancel=${(e) => this.up(e)}>
      <svg role="group" aria-label="The graph of the application. Arrow keys go from node to node." width="100%" height="100%">
        <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M1,1L7,4L1,7" class="head" /></marker></defs>
        <g transform=${`translate(${x},${y}) scale(${k})`}>
          ${found.hulls.map((u) => html`<g key=${u.name} class=${`hull ${u.kind} ${is("unit", u.name) ? "selected" : ""}`}
              onClick=${() => onSelect({ type: "unit", id: u.name })}>
            <rect x=${u.left} y=${u.top} width=${u.width} height=${u.height} rx="16" />
            <text x=${u.left + 14} y=${u.top + 17}>${shorten(u.title, Math.max(TITLE_MAX, (u.width - 2 * PAD) / 6.1))}</text>
          </g>`)}
          ${found.edges.map((e) => html`<path key=${e.id} class=${`edge ${e.kind}`} d=${curve(e.points)} marker-end="url(#arrow)" />`)}
          ${found.edges.map((e) => e.kind !== "inside" && html`<${Bars} key=${e.id} edge=${e} f=${edges[e.id]}
            selected=${is("edge", e.id)} onSelect=${() => onSelect({ type: "edge", id: e.id })} />`)}
          ${found.nodes.map((n) => html`<${Node} key=${n.id} node=${n} unit=${n.unit && (units[n.unit] || {})}
            focusable=${n.id === focused}
            selected=${(n.unit && is("unit", n.unit)) || (n.sink && is("sink", n.sink))}
            onSelect=${() => { this.focus = n.id; onSelect(n.unit ? { type: "unit", id: n.unit } : n.sink
              ? { type: "sink", id: n.sink } : { type: "edge", id: (graph.edges.find((e) => e.from === n.id) || {}).id }); }} />`)}
        </g>
      </svg>
      <div class="zoom">
        <button type="button" aria-label="Zoom in" onClick=${() => this.zoom(1.25)}>+</button>
        <button type="button" aria-label="Zoom out" onClick=${() => this.zoom(0.8)}>−</button>
        <button type="button" aria-label="Show all" onClick=${() => this.fit(true)}>⤢</button>
      </div>
    </div>`;
  }
}
