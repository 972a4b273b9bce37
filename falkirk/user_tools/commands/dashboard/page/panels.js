// The panels beside and below the graph. Each is a function of the state; nothing here keeps state of its own.

import { h } from "./vendor/preact.mjs";
import htm from "./vendor/htm.module.js";
import { Chart } from "./chart.js";
import { ago, clock, count, day, plural, point, seconds } from "./format.js";
import { inWords } from "./graph.js";

const html = htm.bind(h);
const CHARTS_MAX = 8; // with more sinks, only the selected one has a chart

// -- if Spark died now --------------------------------------------------------------------------------------------------

export function IfItDied({ state, onUnit }) {
  const { parts, selected, unitFailure } = state;
  const unit = selected && selected.type === "unit" ? selected.id : null;
  const found = unit ? unitFailure && unitFailure.failed && unitFailure.failed[0] === unit && unitFailure : parts.failure;
  const stopped = parts.now && !parts.now.runs;
  const title = stopped ? "At the next start" : unit ? html`If <b>${unit}</b> died now` : "If Spark died now";
  if (!found) return html`<section class="died"><h2>${title}</h2><p class="quiet">not known yet</p></section>`;
  if (found.error) return html`<section class="died"><h2>${title}</h2><p class="bad">${found.error}</p></section>`;
  const units = found.goes.length + found.stays.length;
  const void_ = found.goes.reduce((sum, g) => sum + g.void, 0);
  return html`<section class="died" aria-labelledby="died">
    <h2 id="died">${title}</h2>
    <dl class="figures">
      <div><dt>back in</dt><dd>${found.back_s == null ? "–" : `≈ ${seconds(found.back_s)}`}</dd>
        <dd class="quiet">${start(found, unit)}</dd></div>
      <div><dt>computed again</dt><dd>${count(found.again)}</dd><dd class="quiet">${found.again === 1 ? "record" : "records"} at most</dd></div>
      <div><dt>go back</dt><dd>${found.goes.length}<small> of ${units}</small></dd><dd class="quiet">${units === 1 ? "region" : "regions"}</dd></div>
      <div><dt>published twice</dt><dd>${found.repeated.length ? "yes" : "0"}</dd>
        <dd class="quiet">${found.repeated.length ? found.repeated.join(", ") : "results"}</dd></div>
    </dl>
    <details><summary>Regions that go back, and their checkpoints</summary>
      <div class="scroll"><table><thead><tr><th>unit</th><th>to</th><th>made</th><th class="n">again</th><th class="n">invalid</th><th>because</th></tr></thead>
        <tbody>${found.goes.map((g) => html`<tr key=${g.unit}><td><button class="link" type="button" onClick=${() => onUnit(g.unit)}>${g.unit}</button></td>
          <td>${point(g.to)}</td><td>${ago(g.made_at_s, state.now)}</td>
          <td class="n">${g.epochs ? plural(g.epochs, "epoch") : count(g.records)}</td><td class="n">${count(g.void)}</td><td>${g.why}</td></tr>`)}</tbody></table></div>
      ${found.stays.length > 0 && html`<p class="quiet">These stay where they are: ${found.stays.join(", ")}.</p>`}
      ${void_ > 0 && html`<p class="quiet">Invalid results are in internal logs: no reader has seen them.</p>`}
    </details>
  </section>`;
}

function start(found, unit) {
  if (unit) return "it restarts in the running Spark";
  if (found.back_s == null) return "no start was measured yet";
  return found.by_standby ? "as the last time, when a standby took over" : "as long as the last start took";
}

// -- what is selected ------------------------------------------------------------------------------------------------

export function Selected({ state, onClose }) {
  const { selected, parts } = state;
  if (!selected || !parts.graph) return null;
  const content = { unit: UnitFacts, edge: EdgeFacts }[selected.type];
  if (!content) return null;
  return html`<section class="selected" aria-live="polite">
    <button class="close" type="button" aria-label="Close" onClick=${onClose}>×</button>
    ${content({ state, id: selected.id })}
  </section>`;
}

function UnitFacts({ state, id }) {
  const unit = state.parts.graph.units.find((u) => u.name === id);
  const now = ((state.parts.now || {}).units || {})[id] || {};
  if (!unit) return null;
  const rows = [
    ["state", html`<span class=${`dot ${now.condition ? "failed" : now.state}`} /> ${now.state || "unknown"}${now.restarts ? `, ${plural(now.restarts, "restart")}` : ""}`],
    now.detail && ["detail", html`<span class=${now.condition ? "bad" : ""}>${now.detail}</span>`],
    now.last_commit >= 0 && ["checkpoint", `${now.last_commit}, ${seconds(now.checkpoint_age_s)} ago`],
    now.incarnation > 0 && ["incarnation", count(now.incarnation)],
    now.twin != null && ["queries", now.twin ? "both run" : "one of the two runs"],
    now.rows != null && ["state", `${count(now.rows)} rows`],
    now.suppressed > 0 && ["replay", `${count(now.suppressed)} results were published before, and were dropped`],
    now.dead_letters > 0 && ["dead letters", count(now.dead_letters)],
    ...unit.facts,
  ].filter(Boolean);
  return html`<h2>${unit.name} <small>${unit.every}</small></h2>
    <dl class="facts">${rows.map(([label, text]) => html`<div><dt>${label}</dt><dd>${text}</dd></div>`)}</dl>`;
}

const MEANING = {
  there: "are in the log",
  computed: "are computed",
  out: "have all their results published, or given to the next region",
  saved: "are in a checkpoint: no failure computes them again",
};

function EdgeFacts({ state, id }) {
  const edge = state.parts.graph.edges.find((e) => e.id === id);
  const f = ((state.parts.look || {}).edges || {})[id];
  if (!edge) return null;
  const of = edge.kind === "publishes" ? "results" : edge.of;
  return html`<h2>${id}</h2>
    ${f ? html`<dl class="facts frontiers">${Object.keys(MEANING).map((name) => html`<div><dt class=${name}>${name}</dt>
      <dd><b>${count(f[name])}</b> ${of} ${MEANING[name]}${name !== "there" && f.there > f[name] ? html` <span class="quiet">(${count(f.there - f[name])} behind)</span>` : ""}</dd></div>`)}</dl>`
    : html`<p class="quiet">not known yet</p>`}`;
}

// -- sinks -----------------------------------------------------------------------------------------------------------

export function Outputs({ state, onSelect }) {
  const { parts, selected, series } = state;
  const found = (parts.graph && parts.graph.sinks) || [];
  return html`<section class="sinks"><h2>Sinks <small>${count(found.length)}</small></h2>
    ${found.map((o) => {
      const now = ((parts.now || {}).sinks || {})[o.name] || {};
      const chosen = selected && selected.type === "sink" && selected.id === o.name;
      const rows = series[now.key];
      const chart = !o.held && (found.length <= CHARTS_MAX || chosen) && rows && rows[1].some((v) => v != null);
      return html`<article key=${o.name} id=${`sink-${o.name}`} class=${chosen ? "selected" : ""}>
        <header><h3>${o.name}</h3><span class="quiet">${o.to}</span></header>
        <p class="promise"><b>${o.promise}</b>, ${o.when}</p>
        <dl class="figures small">
          ${o.held ? html`<div><dt>held</dt><dd>${count(now.held)}</dd></div>
            <div><dt>the oldest since</dt><dd>${now.held ? seconds(now.held_age_s) : "–"}</dd></div>`
          : html`<div><dt class="out">p50</dt><dd>${seconds(now.p50_s)}</dd></div>
            <div><dt class="computed">p99</dt><dd>${seconds(now.p99_s)}</dd></div>`}
          <div><dt>per second</dt><dd>${now.per_s == null ? "–" : count(now.per_s)}</dd></div>
        </dl>
        ${chart && html`<${Chart} label=${`Latency of ${o.name}: p50 ${seconds(now.p50_s)}, p99 ${seconds(now.p99_s)}`}
          series=${[rows[0], rows[2], rows[1]]} />`}
        ${now.held > 0 && html`<p class="held">${plural(now.held, "result")} ${now.held === 1 ? "waits" : "wait"}${o.awaits.length
          ? ` for a checkpoint of ${o.awaits.join(", ")}` : ""}: <span class="quiet">${o.why}</span></p>`}
        <details open=${chosen || undefined}><summary>Why</summary>
          <ul>${o.reasons.map((r) => html`<li>${r.text}${r.where && html` <code>${r.where}</code>`}</li>`)}
            ${o.advice.map((text) => html`<li><b>Sooner:</b> ${text}</li>`)}
            ${o.costs.map((text) => html`<li class="quiet">Costs: ${text}</li>`)}</ul>
        </details>
      </article>`;
    })}
  </section>`;
}

// -- history ---------------------------------------------------------------------------------------------------------

export function History({ state, onCut, onAsk }) {
  const { parts, cut, preview } = state;
  const cuts = parts.history || [];
  if (!cuts.length) return html`<p class="quiet">No consistent cut of the application is known yet.</p>`;
  const place = cut == null ? 0 : Math.max(0, cuts.findIndex((c) => c.cut === cut));
  const chosen = cuts[place];
  const outside = Object.entries(chosen.outside);
  const made = chosen.made_at_s == null ? "the start" : `${day(chosen.made_at_s)}, ${ago(chosen.made_at_s, state.now)}`;
  const shown = preview && preview.of === chosen.cut && preview.content;
  return html`<div class="history">
    <p class="lead">Each cut is a state to which the whole application can return. Move the slider: nothing changes until you confirm.</p>
    <label class="slider"><span class="quiet">oldest</span>
      <input type="range" min="0" max=${cuts.length - 1} value=${cuts.length - 1 - place} aria-label="Consistent cut"
        aria-valuetext=${`cut ${chosen.cut}, ${made}`} onInput=${(e) => onCut(cuts[cuts.length - 1 - Number(e.target.value)].cut)} />
      <span class="quiet">newest</span></label>
    <h3>Cut ${chosen.cut} <small>${made}</small></h3>
    <p>${plural(chosen.input_read_again, "record")} would be read again.${" "}
      ${outside.length ? html`<span class="bad">${outside.map(([topic, n]) => `${plural(n, "published result")} in ${topic}`).join(", ")} would become invalid.</span>`
        : "No published result would become invalid."}</p>
    ${shown && (shown.message ? html`<p class="bad">${shown.message} ${shown.hint || ""}</p>` : html`<div class="scroll"><table>
      <thead><tr><th>unit</th><th>from</th><th>to</th><th class="n">read again</th><th class="n">made invalid</th><th>because</th></tr></thead>
      <tbody>${shown.moves.map((m) => html`<tr key=${m.region}><td>${m.region}</td><td>${point(m.from)}</td><td>${point(m.to)}</td>
        <td class="n">${count(m.input_read_again)}</td><td class="n">${count(m.results_taken_back)}</td><td>${m.why}</td></tr>`)}</tbody></table></div>
      ${shown.stays.length > 0 && html`<p class="quiet">These keep their state: ${shown.stays.join(", ")}.</p>`}`)}
    <button type="button" class="action" disabled=${!shown || shown.message || !(parts.now || {}).runs} onClick=${() => onAsk(chosen)}>Roll back to this cut…</button>
    ${!(parts.now || {}).runs && html`<p class="quiet">The application does not run. Roll it back with <code>falkirk rollback ${(parts.app || {}).file} --to ${chosen.cut}</code></p>`}
  </div>`;
}

export function Confirm({ asked, onCancel, onConfirm, onForce }) {
  const { cut, shown, force, busy, answer } = asked;
  const outside = Object.entries(shown.outside);
  const names = shown.moves.map((m) => m.region).join(", ");
  return html`<dialog id="confirm" aria-labelledby="confirm-title" onCancel=${onCancel}>
    <h2 id="confirm-title">Roll back to cut ${cut.cut}?</h2>
    <p>${names || "No region"} ${shown.moves.length === 1 ? "goes" : "go"} back${cut.made_at_s ? ` to ${day(cut.made_at_s)}` : " to the start"}.
      Results after the cut become invalid and are computed anew.</p>
    ${outside.map(([topic, n]) => html`<label class="force"><input type="checkbox" checked=${force} onChange=${onForce} />
      <span>Contradict ${plural(n, "published result")} in <b>${topic}</b>, and results published until then: readers keep the old ones and get others.</span></label>`)}
    ${answer && html`<p class=${answer.bad ? "bad" : "good"} role="status">${answer.text}</p>`}
    <div class="buttons"><button type="button" onClick=${onCancel}>${answer && !answer.bad ? "Close" : "Cancel"}</button>
      ${!(answer && !answer.bad) && html`<button type="button" class="danger" disabled=${busy || (outside.length > 0 && !force)} onClick=${onConfirm}>${busy ? "Rolling back…" : "Roll back"}</button>`}</div>
  </dialog>`;
}

// -- dead letters and events -----------------------------------------------------------------------------------------

export function Letters({ state, onLoad }) {
  const { letters } = state;
  if (!letters) return html`<p class="quiet">Reading…</p>`;
  if (letters.message) return html`<p class="bad">${letters.message} ${letters.hint || ""}</p>`;
  return html`<div class="letters"><p class="lead">${letters.length ? `The newest ${plural(letters.length, "dead letter")}.` : "There are no dead letters."}
      ${" "}<button class="link" type="button" onClick=${onLoad}>Read again</button></p>
    ${letters.map((l) => html`<article key=${l.id}><header><b>${l.unit}</b> <span class="quiet">${day(l.at_s)}${l.source ? ` · from ${l.source}` : ""}</span></header>
      <p>${l.reason}</p><pre tabindex="0">${l.payload}</pre>
      ${l.length > l.payload.length && html`<p class="quiet">${count(l.length)} characters in all.</p>`}</article>`)}
  </div>`;
}

export function Events({ state, onCheckpoints }) {
  const { parts, checkpoints } = state;
  const found = (parts.events || []).filter((e) => checkpoints || e.kind !== "checkpoint");
  return html`<div class="events"><label class="lead"><input type="checkbox" checked=${checkpoints} onChange=${onCheckpoints} /> with checkpoints</label>
    ${found.length ? html`<ol>${found.map((e) => html`<li key=${e.n} class=${e.kind}><time>${clock(e.at_s)}</time>
      <span>${e.unit && html`<b>${e.unit}</b> `}${e.text}</span></li>`)}</ol>` : html`<p class="quiet">Nothing has happened since this page's process began.</p>`}
  </div>`;
}

// -- legend ----------------------------------------------------------------------------------------------------------

export function Legend() {
  const items = [
    ["computed", "computed"],
    ["out", "out: results published or passed on"],
    ["saved", "saved: in a checkpoint"],
  ];
  return html`<ul class="legend" aria-label="The bars on an edge">${items.map(([name, text]) => html`<li><i class=${name} />${text}</li>`)}</ul>`;
}

export { inWords };
