// The page: one state, fed by the stream, drawn again after each change.

import { h, render } from "./vendor/preact.mjs";
import htm from "./vendor/htm.module.js";
import { ago, plural, seconds } from "./format.js";
import { GraphView, noteFrontiers } from "./graph.js";
import { Confirm, Events, History, IfItDied, Legend, Letters, Outputs, Selected } from "./panels.js";
import { ask, follow, keepToken, takeToken } from "./stream.js";

const html = htm.bind(h);
const SERIES_MAX = 450; // as many values as the server keeps
const TABS = [["history", "History"], ["letters", "Dead letters"], ["events", "Events"]];
const narrow = matchMedia("(max-width: 720px)");

const state = {
  parts: {}, link: "starting", selected: null, unitFailure: null, tab: "history", cut: null, preview: null,
  follows: true, letters: null, checkpoints: true, asked: null, series: {}, now: Date.now() / 1000, token: takeToken(),
};
let view = null;
let drawing = false;

function set(change) {
  Object.assign(state, change);
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    state.now = Date.now() / 1000;
    render(html`<${Page} />`, document.getElementById("page"));
  });
}

// -- what comes in ---------------------------------------------------------------------------------------------------

function onPart(name, content) {
  state.parts[name] = content;
  if (name === "app") document.title = `${content.application} · Falkirk`;
  if (name === "latency") state.series = content;
  if (name === "now") extend(content);
  if (name === "look") {
    noteFrontiers(content);
    if (state.selected && state.selected.type === "unit") loadFailure(state.selected.id);
  }
  set({});
}

// A new page gets the past of each latency, and then continues it from the present values.
function extend(now) {
  for (const sink of Object.values(now.sinks || {})) {
    const rows = state.series[sink.key] || (state.series[sink.key] = [[], [], []]);
    const last = rows[0][rows[0].length - 1];
    if (now.at_s == null || (last != null && now.at_s - last < 2)) continue;
    state.series[sink.key] = [[...rows[0], now.at_s], [...rows[1], sink.p50_s], [...rows[2], sink.p99_s]]
      .map((values) => values.slice(-SERIES_MAX));
  }
}

async function loadFailure(unit) {
  const { status, content } = await ask(state.token, `api/failure?unit=${encodeURIComponent(unit)}`);
  if (status === 200 && state.selected && state.selected.id === unit) set({ unitFailure: content });
}

async function loadLetters() {
  set({ letters: null });
  const { content } = await ask(state.token, "api/letters");
  set({ letters: content });
}

let previewing = 0;
function onCut(cut, follows = false) {
  set({ cut, follows }); // until the slider is moved, it stays at the newest cut
  clearTimeout(previewing);
  previewing = setTimeout(() => loadPreview(cut), 150);
}

async function loadPreview(cut) {
  const { status, content } = await ask(state.token, `api/preview?cut=${cut}`);
  const found = status === 200 ? content : { message: "failed", ...content };
  if (state.cut === cut) set({ preview: { of: cut, content: found } });
  return found;
}

// -- what the user does ----------------------------------------------------------------------------------------------

function select(selected) {
  const same = state.selected && selected && state.selected.type === selected.type && state.selected.id === selected.id;
  set({ selected: same || !selected || !selected.id ? null : selected, unitFailure: null });
  if (!same && selected && selected.type === "unit") loadFailure(selected.id);
  if (!same && selected && selected.type === "sink") {
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const found = document.getElementById(`sink-${selected.id}`);
      if (found) found.scrollIntoView({ block: "nearest", behavior: "smooth" });
    }));
  }
}

function openTab(tab) {
  set({ tab });
  if (tab === "letters" && !state.letters) loadLetters();
  if (tab === "history" && state.cut == null && (state.parts.history || []).length) onCut(state.parts.history[0].cut, true);
}

// The numbers in the question are new, because the server compares them with those at the time of the answer.
async function askRollback(cut) {
  const shown = await loadPreview(cut.cut);
  if (shown.message || state.asked || state.cut !== cut.cut) return;
  set({ asked: { cut, shown, force: false, busy: false, answer: null } });
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("confirm").showModal()));
}

const change = (values) => set({ asked: state.asked && { ...state.asked, ...values } });

async function confirmRollback() {
  const { cut, force, shown } = state.asked;
  change({ busy: true, answer: null });
  const checkpoints = Object.fromEntries(shown.moves.map((m) => [m.region, m.to]));
  const agreed = { checkpoints, outside: shown.outside, at_s: shown.at_s };
  const { status, content } = await ask(state.token, "api/rollback", { cut: cut.cut, force, shown: agreed });
  if (content.condition === "PREVIEW_OUTDATED") {
    const found = await loadPreview(cut.cut);
    if (!found.message) change({ shown: found, force: false });
  }
  const text = status === 200 ? "Done. The application resumes from there." : `${content.message} ${content.hint || ""}`;
  change({ busy: false, answer: { bad: status !== 200, text } });
}

function onFindKey(event) {
  const wanted = event.target.value.trim().toLowerCase();
  if (event.key !== "Enter" || !wanted || !view) return;
  const labels = state.parts.graph.nodes.map((n) => [n, n.label.toLowerCase()]);
  const [node] = labels.find(([, label]) => label === wanted) || labels.find(([, label]) => label.includes(wanted)) || [];
  if (!node) return;
  view.show(node.id);
  if (node.unit) select({ type: "unit", id: node.unit });
}

function onTabKey(event, place) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const [name] = TABS[(place + step + TABS.length) % TABS.length];
  openTab(name);
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById(`tab-${name}`).focus()));
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.selected && !state.asked) select(null);
  if (event.key === "/" && !/INPUT|TEXTAREA/.test(event.target.tagName)) {
    const field = document.getElementById("find");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
});

// -- the page --------------------------------------------------------------------------------------------------------

function status() {
  const { now } = state.parts;
  if (state.link === "lost") return ["lost", "the coordinator does not answer"];
  if (!now) return ["starting", "connecting"];
  const units = Object.values(now.units);
  if (!now.runs) return units.some((u) => u.state === "starting") ? ["starting", "starting"] : ["stopped", "does not run"];
  const failed = units.filter((u) => u.condition).length;
  if (failed) return ["failed", `${plural(failed, "region")} failed for good`];
  const waiting = units.filter((u) => u.state !== "running");
  if (waiting.length) {
    const since = now.down_since_s == null ? "" : ` since ${seconds(Math.max(0, state.now - now.down_since_s))}`;
    const usual = now.start_s == null ? "" : `; the last start took ${seconds(now.start_s)}`;
    return ["starting", `${waiting.length} of ${units.length} not running${since}${usual}`];
  }
  return ["running", "running"];
}

function Header() {
  const { parts } = state;
  const [kind, text] = status();
  const ages = Object.values((parts.now || {}).units || {}).map((u) => u.checkpoint_age_s).filter((s) => s != null);
  const late = parts.now && parts.now.at_s ? Math.max(0, state.now - parts.now.at_s) : 0;
  const many = ((parts.graph || {}).nodes || []).length > 12;
  return html`<header class="top">
    <h1><img src="icon.svg" alt="" width="22" height="22" />${(parts.app || {}).application || "Falkirk"}</h1>
    <span class=${`pill ${kind}`} role="status"><span class=${`dot ${kind}`} />${text}</span>
    <span class="quiet meta">${parts.graph ? plural(parts.graph.units.length, "region") : ""}${ages.length
      ? ` · oldest checkpoint ${seconds(Math.max(...ages) + late)} ago` : ""}${late > 5 && parts.now.at_s ? ` · last report ${ago(parts.now.at_s, state.now)}` : ""}</span>
    ${many && html`<input id="find" type="search" placeholder="Find a step  /" aria-label="Find a step" onKeyDown=${onFindKey} />`}
  </header>`;
}

function Tabs() {
  const { parts, tab } = state;
  const dead = Object.values((parts.now || {}).units || {}).reduce((sum, u) => sum + (u.dead_letters || 0), 0);
  const number = { letters: dead, history: (parts.history || []).length };
  return html`<section class="tabs">
    <div role="tablist" aria-label="More">${TABS.map(([name, label], place) => html`<button key=${name} id=${`tab-${name}`} role="tab" type="button"
      aria-selected=${tab === name} aria-controls="tabpanel" tabindex=${tab === name ? 0 : -1}
      onClick=${() => openTab(name)} onKeyDown=${(e) => onTabKey(e, place)}>${label}${number[name] ? html` <small>${number[name]}</small>` : ""}</button>`)}</div>
    <div id="tabpanel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>
      ${tab === "history" && html`<${History} state=${state} onCut=${onCut} onAsk=${askRollback} />`}
      ${tab === "letters" && html`<${Letters} state=${state} onLoad=${loadLetters} />`}
      ${tab === "events" && html`<${Events} state=${state} onCheckpoints=${() => set({ checkpoints: !state.checkpoints })} />`}
    </div>
  </section>`;
}

function Page() {
  const { parts, link, selected } = state;
  if (link === "refused" || !state.token) return html`<${AskToken} />`;
  const problem = parts.look && parts.look.error;
  return html`<${Header} />
    <main>
      <${IfItDied} state=${state} onUnit=${(id) => select({ type: "unit", id })} />
      <section class="graph" aria-label="Graph">
        ${parts.graph ? html`<${GraphView} onReady=${(found) => { view = found; }} graph=${parts.graph} now=${parts.now} look=${parts.look}
            direction=${narrow.matches ? "TB" : "LR"} selected=${selected} onSelect=${select} /><${Legend} />`
          : html`<p class="quiet wait">The application has no plan yet. It appears when Spark has started.</p>`}
        ${problem && html`<p class="bad problem" role="alert">${problem}</p>`}
        ${((parts.now || {}).foreign || []).map((text) => html`<p class="bad problem">${text} that this home did not write are ignored.</p>`)}
      </section>
      <aside><${Selected} state=${state} onClose=${() => select(null)} /><${Outputs} state=${state} /></aside>
      <${Tabs} />
    </main>
    ${state.asked && html`<${Confirm} asked=${state.asked} onCancel=${() => set({ asked: null })} onConfirm=${confirmRollback}
      onForce=${() => change({ force: !state.asked.force })} />`}`;
}

function AskToken() {
  const enter = (event) => {
    event.preventDefault();
    keepToken(event.target.elements.token.value.trim());
    location.reload();
  };
  return html`<main class="token"><h1><img src="icon.svg" alt="" width="22" height="22" />Falkirk</h1>
    <p>Open the link that <code>falkirk run --dashboard</code> or <code>falkirk dashboard</code> prints, or enter its token. Each start has a new one.</p>
    <form onSubmit=${enter}><input name="token" type="password" autocomplete="off" aria-label="Token" required /> <button class="action" type="submit">Open</button></form></main>`;
}

narrow.addEventListener("change", () => set({}));
setInterval(() => set({}), 1000); // ages grow
set({});
if (state.token) {
  follow(state.token, (name, content) => {
    onPart(name, content);
    const isNew = name === "history" && content.length && content[0].cut !== state.cut;
    if (isNew && (state.follows || !content.some((c) => c.cut === state.cut))) onCut(content[0].cut, true);
  }, (link) => set({ link }));
}
