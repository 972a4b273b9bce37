// How numbers, times and names are written. Everything that is shown passes through text nodes, never through HTML.

export const count = (n) => (n == null ? "–" : Math.round(n).toLocaleString("en"));

export function seconds(s) {
  if (s == null) return "–";
  if (s === 0) return "0 s";
  if (s < 0.0095) return `${(s * 1000).toFixed(1)} ms`;
  if (s < 0.95) return `${Math.round(s * 1000)} ms`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

export const ago = (at, now) => (at == null ? "" : `${seconds(Math.max(0, now - at))} ago`);

export const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

export const day = (at) => new Date(at * 1000).toLocaleString("en-GB");

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export const point = (number) => (number < 0 ? "the start" : `checkpoint ${number}`);

export const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
