// The connection to the coordinator. EventSource can't send the token in a header, so this reads the same format of
// server-sent events from `fetch`, and connects again by itself.

const SILENCE_MS = 20_000; // the server sends a sign of life each 5 s

// The token is in the part of the link after "#", which is sent nowhere. It stays for a reload of this tab.
export function takeToken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found) {
    sessionStorage.setItem("falkirk-token", found);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("falkirk-token") || "";
}

export const keepToken = (token) => sessionStorage.setItem("falkirk-token", token);

// Ask for JSON. Returns {status, content}; status 0: nobody answers.
export async function ask(token, path, body) {
  const options = { headers: { Authorization: `Bearer ${token}` } };
  if (body !== undefined) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  try {
    const answer = await fetch(path, options);
    return { status: answer.status, content: await answer.json() };
  } catch (error) {
    return { status: 0, content: { message: "the coordinator does not answer" } };
  }
}

// Follow the parts of the board for ever. onPart(name, content), onState("open" | "lost" | "refused").
export async function follow(token, onPart, onState) {
  let last = "";
  for (let failures = 0; ; failures += 1) {
    try {
      const ended = new AbortController();
      const headers = { Authorization: `Bearer ${token}` };
      if (last) headers["Last-Event-ID"] = last;
      const answer = await fetch("api/stream", { headers, signal: ended.signal, cache: "no-store" });
      if (answer.status === 401) return onState("refused");
      if (!answer.ok) throw new Error(answer.status);
      onState("open");
      failures = 0;
      for await (const event of events(answer.body, ended)) {
        if (event.data) onPart(event.event, JSON.parse(event.data));
        if (event.id) last = event.id;
      }
    } catch (error) {
      // Any end is the same: connect again.
    }
    onState("lost");
    await new Promise((go) => setTimeout(go, Math.min(5000, 500 * 2 ** failures)));
  }
}

async function* events(body, ended) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const silence = setTimeout(() => ended.abort(), SILENCE_MS);
    const { value, done } = await reader.read();
    clearTimeout(silence);
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const event = {};
      for (const line of block.split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      yield event;
    }
  }
}
