// The latency of one sink in the last minutes, with uPlot.

import { Component, h } from "./vendor/preact.mjs";
import uPlot from "./vendor/uPlot.esm.js";
import { seconds } from "./format.js";

const HEIGHT = 84;
const dark = matchMedia("(prefers-color-scheme: dark)");

export class Chart extends Component {
  componentDidMount() {
    this.draw();
    this.recolour = () => this.draw();
    dark.addEventListener("change", this.recolour);
    this.resized = new ResizeObserver(() => this.plot && this.plot.setSize({ width: this.width(), height: HEIGHT }));
    this.resized.observe(this.element);
  }

  componentWillUnmount() {
    dark.removeEventListener("change", this.recolour);
    this.resized.disconnect();
    this.plot.destroy();
  }

  componentDidUpdate() {
    this.plot.setData(this.props.series);
  }

  width() {
    return Math.max(120, this.element.clientWidth);
  }

  draw() {
    if (this.plot) this.plot.destroy();
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: colour("--quiet"), font, grid: { show: false }, ticks: { show: false } };
    const line = (label, name, width) => ({ label, stroke: colour(name), width, points: { show: false }, spanGaps: false });
    const options = {
      width: this.width(), height: HEIGHT, legend: { show: false }, cursor: { show: false }, padding: [6, 6, 0, 0],
      scales: { y: { range: (u, low, high) => [0, Math.max(high || 0, 0.01) * 1.1] } },
      axes: [
        { ...axis, size: 18, space: 90, values: (u, at) => at.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB")) },
        { ...axis, size: 50, space: 26, values: (u, at) => at.map((v) => seconds(v)), grid: { show: true, stroke: colour("--line"), width: 1 } },
      ],
      series: [{}, line("p99", "--computed", 1.5), line("p50", "--accent", 1.75)],
    };
    this.plot = new uPlot(options, this.props.series, this.element);
  }

  render({ label }) {
    return h("div", { ref: (element) => { this.element = element || this.element; }, class: "chart", role: "img", "aria-label": label });
  }
}
