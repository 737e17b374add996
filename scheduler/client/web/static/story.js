// The story of a job: what was decided and why, its sizes, iteration times and resizes.

import { duration, moment } from "./document.js";
import { colourOf } from "./colours.js";

const MOMENT = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g;
const PHASES = ["close_s", "join_s", "plan_s", "move_s", "resume_s"];

// Make an element with a text and children; the text of others is never markup.
export function element(name, text = "", ...children) {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  made.append(...children);
  return made;
}

// Show moments within a sentence, which are UTC, by the clock of the reader.
export function localTimes(text) {
  return text.replace(MOMENT, (found) => new Date(found).toLocaleString());
}

export function textTable(heads, rows, label) {
  const made = element("table");
  made.setAttribute("aria-label", label);
  const head = element("tr");
  for (const text of heads) {
    const cell = element("th", text);
    cell.scope = "col";
    head.append(cell);
  }
  made.append(element("thead", "", head));
  made.append(element("tbody", "", ...rows.map((row) => element("tr", "", ...row.map((text) => element("td", String(text)))))));
  return made;
}

// Sizes over time as a chart of steps.
function sizesChart(run, steps, end, theme, number) {
  const canvas = element("canvas");
  canvas.className = "sizes";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Processors over time: ${steps.map(([, size]) => size).join(", ")}`);
  requestAnimationFrame(() => {
    const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const begin = steps[0][0], most = Math.max(...steps.map(([, size]) => size), 1);
    const x = (at) => 26 + ((at - begin) / (end - begin || 1)) * (width - 30);
    const y = (size) => height - 4 - (size / most) * (height - 14);
    context.fillStyle = theme.jobs[colourOf(number)];
    steps.forEach(([at, size], i) => {
      const to = i + 1 < steps.length ? steps[i + 1][0] : end;
      context.fillRect(x(at), y(size), Math.max(1, x(to) - x(at)), height - 4 - y(size));
    });
    context.fillStyle = theme.ink;
    context.font = "10px system-ui, sans-serif";
    context.fillText(String(most), 4, y(most) + 8);
    context.fillText("0", 4, height - 4);
  });
  return canvas;
}

function iterations(times) {
  const most = Math.max(...times.map(([, seconds]) => seconds));
  const list = element("dl");
  list.className = "bars";
  for (const [size, seconds] of times) {
    const bar = element("span");
    bar.className = "bar";
    bar.style.width = `${Math.max(1, (100 * seconds) / most)}%`;
    list.append(element("dt", `on ${size}`), element("dd", "", bar, element("span", duration(seconds))));
  }
  return list;
}

// Build the story of a job: `row` is that of tables, `told` what the journal tells; null: nothing.
export function storyOf(run, row, told, theme) {
  const parts = [];
  const line = [row.name, row.user, row.state].filter(Boolean).join(", ");
  parts.push(element("p", line));
  const waited = row.started === null ? null : row.started - row.submitted;
  const facts = [
    ["submitted", moment(run, row.submitted)],
    ["started", row.started === null ? (row.expected === null ? "not yet" : `expected ${moment(run, row.expected)}`)
      : `${moment(run, row.started)}, after ${duration(waited)}`],
    ["ended", row.ended === null ? "not yet" : `${moment(run, row.ended)}, after ${duration(row.ended - (row.started ?? row.submitted))}`],
    ["requested", row.least === row.most ? `${row.requested} processors` : `${row.requested} processors, ${row.least} to ${row.most}`],
    ...Object.entries(told?.facts ?? {}).filter(([name]) => !["state", "user", "requested"].includes(name)),
  ];
  const gained = told?.gained_s;
  if (gained !== null && gained !== undefined) {
    facts.push(["gained by resizing", gained >= 0 ? duration(gained) : `nothing; it lost ${duration(-gained)}`]);
  }
  const list = element("dl");
  list.className = "facts";
  for (const [name, value] of facts) list.append(element("dt", name), element("dd", String(value)));
  for (const sentence of told?.advice ?? []) {
    const note = element("p", sentence);
    note.className = "advice";
    parts.push(note);
  }
  for (const sentence of told?.waiting ?? []) parts.push(element("p", localTimes(sentence)));
  parts.push(list);
  const steps = told?.sizes?.length ? told.sizes.map(([at, size]) => [at - (run.origin ?? 0), size]) : stepsOf(run, row);
  if (steps.length) {
    parts.push(element("h3", "Processors over time"), sizesChart(run, steps, row.ended ?? run.now, theme, row.number));
  }
  if (told?.iterations?.length) parts.push(element("h3", "Iteration time by size"), iterations(told.iterations));
  if (told?.resizes?.length) {
    const rows = told.resizes.map((resize) => [
      moment(run, resize.at - run.origin), `${resize.old} → ${resize.new}`, resize.outcome,
      ...PHASES.map((phase) => (1000 * resize[phase]).toFixed(0)), (resize.moved_bytes / 2 ** 20).toFixed(1),
    ]);
    const heads = ["decided", "sizes", "outcome", ...PHASES.map((phase) => `${phase.replace("_s", "")} ms`), "MiB"];
    const wrap = element("div", "", textTable(heads, rows, "Resizes"));
    wrap.className = "wide";
    parts.push(element("h3", "Resizes and their pauses"), wrap);
  }
  if (told?.lines?.length) {
    const story = element("ol");
    story.className = "lines";
    for (const [at, text] of told.lines) {
      story.append(element("li", "", element("time", moment(run, at - run.origin)), element("span", localTimes(text))));
    }
    parts.push(element("h3", "What was decided, and why"), story);
    if (told.left_out) parts.push(element("p", `${told.left_out} earlier lines are left out`));
  }
  if (told?.output) parts.push(element("h3", "Last lines of its output"), element("pre", told.output));
  return parts;
}

// Sizes of a job over time by its segments.
function stepsOf(run, row) {
  if (!run.rowOf.has(row.number)) return [];
  const changes = new Map();
  for (const i of run.segmentsOf(run.rowOf.get(row.number))) {
    const { begin, end, count, kind } = run.segment;
    if (kind[i] === 4) continue;
    changes.set(begin[i], (changes.get(begin[i]) ?? 0) + count[i]);
    changes.set(end[i], (changes.get(end[i]) ?? 0) - count[i]);
  }
  let size = 0;
  return [...changes].sort(([one], [other]) => one - other).map(([at, change]) => [at * run.tick_s, (size += change)]);
}
