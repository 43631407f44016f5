// A worker: where a pattern fits in lines. It runs beside the page, which ends it when it takes too long.
onmessage = ({ data: { pattern, nocase, lines } }) => {
  let regex = null;
  for (const flags of ["gu", "g"]) {
    try { regex ??= new RegExp(pattern, nocase ? `${flags}i` : flags); } catch { /* The server's syntax knows more. */ }
  }
  postMessage(lines.map((line) => {
    const spans = [];
    if (regex) for (const found of line.matchAll(regex)) { if (found[0].length) spans.push([found.index, found.index + found[0].length]); if (spans.length === 50) break; }
    return spans;
  }));
};
