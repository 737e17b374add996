// Elements of the page: the table of jobs, and the story of one.

const PAGE = 100;
const COLUMNS = { // besides the job itself
  name: (run, row) => row.name,
  user: (run, row) => row.user,
  state: (run, row) => row.state,
  processors: (run, row) => request(row),
  submitted: (run, row) => moment(run, row.submitted),
  waits: (run, row) => duration((row.started ?? row.ended ?? run.now) - row.submitted),
  start: (run, row) => startText(run, row),
  end: (run, row) => moment(run, row.ended),
  reason: (run, row) => localTimes(row.reason),
};

const by = (id) => document.getElementById(id);

// Make an element with properties and children; texts, which may be of others, are never markup.
function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const button = (text, onclick, properties) => element("button", { type: "button", onclick, ...properties }, text);

// Processors that a job requests.
const request = ({ requested, least, most }) => (least === most ? `${requested}` : `${requested} (${least}-${most})`);

function startText(run, { started, expected }) {
  return started === null && expected !== null ? `expected ${moment(run, expected)}` : moment(run, started);
}

// Fill a table with heads and rows.
function filled(table, heads, rows) {
  const cells = heads.map((text) => element("th", { scope: "col" }, text));
  table.replaceChildren(element("thead", {}, element("tr", {}, ...cells)), element("tbody", {}, ...rows));
  return table;
}

function textTable(heads, rows, ariaLabel) {
  const lines = rows.map((row) => element("tr", {}, ...row.map((text) => element("td", {}, text))));
  return element("div", { className: "wide" }, filled(element("table", { ariaLabel }), heads, lines));
}

function isMatch(row, { group, text }) {
  if (group !== "all" && group !== groupOf(row)) return false;
  const fields = [labelOf(row), row.name, row.user, row.state];
  return fields.some((field) => field.toLowerCase().includes(text.toLowerCase()));
}

// A list of names, each with what it has.
const factList = (pairs) => element("dl", { className: "facts" }, ...pairs.flatMap(
  ([name, ...parts]) => [element("dt", {}, name), element("dd", {}, ...parts)]));

function facts(run, row, { facts: others = {}, gained_s = null }) {
  const { submitted, started, ended } = row, after = (from, to) => (to === null ? "" : `, after ${duration(to - from)}`);
  const gain = gained_s < 0 ? `nothing; it lost ${duration(-gained_s)}` : duration(gained_s);
  return factList([
    ["Submitted", moment(run, submitted)],
    ["Started", startText(run, row) + after(submitted, started)],
    ["Ended", moment(run, ended) + after(started ?? submitted, ended)],
    ["Requested", `${request(row)} processor${row.requested === 1 ? "" : "s"}`],
    ...Object.entries(others).map(([name, text]) => [name, localTimes(text)]),
    ...(gained_s === null ? [] : [["Gained by resizing", gain]]),
  ]);
}

function sizesChart(steps, end, theme) {
  const canvas = element("canvas", { className: "sizes", role: "img" });
  canvas.ariaLabel = `Processors over time: ${steps.map(([, size]) => size).join(", ")}`;
  requestAnimationFrame(() => {
    const { context, width, height } = prepared(canvas), box = [26, 6, width - 30, height - 12];
    context.fillStyle = theme.ink;
    drawSteps(context, steps, end, scale(steps[0][0], end, box[0], box[2]), box, theme.accent);
  });
  return canvas;
}

function iterations(times) {
  const max = Math.max(...times.map(([, seconds]) => seconds));
  return factList(times.map(([size, value]) => [`on ${size}`, element("meter", { max, value }), ` ${duration(value)}`]));
}

function sentences(run, { lines, left_out }) {
  const items = lines.map(([at, text]) => element("li", {},
    element("time", {}, moment(run, at - run.origin)), localTimes(text)));
  const rest = left_out ? [element("li", {}, `${counted(left_out, "earlier line")} left out`)] : [];
  return element("ol", { className: "lines" }, ...rest, ...items);
}

// Build the story of a job: `row` is that of tables, `told` what the journal tells; null: nothing.
function storyOf(run, row, told, theme) {
  const { advice = [], waiting = [], sizes, iterations: times = [], lines = [], output } = told ?? {};
  const [heads, ...resized] = told?.resizes ?? [];
  const steps = sizes?.length ? sizes.map(([at, size]) => [at - run.origin, size]) : run.sizesOf(row.number);
  const sections = [
    ["Processors over time", steps.length && sizesChart(steps, row.ended ?? run.now, theme)],
    ["Iteration time by size", times.length && iterations(times)],
    ["Resizes and their pauses, in ms", resized.length && textTable(heads, resized, "Resizes")],
    ["What was decided, and why", lines.length && sentences(run, told)],
    ["Last lines of its output", output && element("pre", {}, output)],
  ];
  return [
    element("p", {}, [row.name, row.user, row.state].filter(Boolean).join(", ")),
    ...advice.map((text) => element("p", { className: "advice" }, text)),
    ...waiting.map((text) => element("p", {}, localTimes(text))),
    facts(run, row, told ?? {}),
    ...sections.flatMap(([title, part]) => (part ? [element("h3", {}, title), part] : [])),
  ];
}
