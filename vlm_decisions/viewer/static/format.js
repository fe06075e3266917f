// Numbers as people read them.

export function seconds(s) {
  if (s == null || !Number.isFinite(s)) return "–";
  if (s < 9.95) return `${Math.max(0, s).toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return `${Math.round(s / 3600)} h`;
}

export function probability(p) {
  return p == null ? "–" : p.toFixed(2);
}

export function hertz(hz) {
  if (hz == null) return "–";
  return Number(hz.toFixed(hz < 9.95 ? 1 : 0)).toString();
}

export function milliseconds(ms) {
  if (ms == null) return "–";
  return `${ms < 9.95 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

const big = new Intl.NumberFormat("en");
export const count = (n) => big.format(n);

const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
export const time = (epochS) => clock.format(new Date(epochS * 1000));
