// Elements of the page: the table of jobs, and the story of one.

const PAGE = 100;
const COLUMNS = {
  job: (run, row) => labelOf(row),
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

// Make an element with a text, properties and children; the text of others is never markup.
function element(name, text = "", properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  if (text !== "") made.textContent = text;
  made.append(...children);
  return made;
}

const button = (text, act, properties = {}) => element("button", text, { type: "button", onclick: act, ...properties });

function startText(run, { started, expected }) {
  return started === null && expected !== null ? `expected ${moment(run, expected)}` : moment(run, started);
}

// Make the parts of a table: heads, and rows of texts or elements.
function tableParts(heads, rows) {
  const cells = heads.map((text) => element("th", text, { scope: "col" }));
  return [element("thead", "", {}, element("tr", "", {}, ...cells)), element("tbody", "", {}, ...rows)];
}

function textTable(heads, rows, ariaLabel) {
  const lines = rows.map((row) => element("tr", "", {}, ...row.map((text) => element("td", text))));
  const table = element("table", "", { ariaLabel }, ...tableParts(heads, lines));
  return element("div", "", { className: "wide" }, table);
}

function isMatch(row, { group, text }) {
  if (group !== "all" && group !== groupOf(row)) return false;
  const fields = [labelOf(row), row.name, row.user, row.state];
  return fields.some((field) => field.toLowerCase().includes(text.toLowerCase()));
}

// Fill a table with jobs; `open` and `light` are called with the number of a job, null: of none.
function fillTable(table, run, rows, { open, light, lit }) {
  const isShown = (text) => rows.some((row) => !["", "-"].includes(text(run, row)));
  const [[, label], ...others] = Object.entries(COLUMNS).filter(([, text]) => !rows.length || isShown(text));
  const lines = rows.map((row) => {
    const story = button(label(run, row), () => open(row.number), { ariaLabel: `Story of job ${labelOf(row)}` });
    const head = element("th", "", { scope: "row" }, story);
    const cells = others.map(([className, text]) => element("td", text(run, row), { className }));
    const className = row.number === lit ? "lit" : "";
    const onpointerenter = () => light(row.number), onpointerleave = () => light(null);
    const line = element("tr", "", { className, onpointerenter, onpointerleave }, head, ...cells);
    line.dataset.job = row.number;
    return line;
  });
  table.replaceChildren(...tableParts(["job", ...others.map(([name]) => name)], lines));
}

function facts(run, row, told) {
  const { submitted, started, ended } = row;
  const list = [
    ["Submitted", moment(run, submitted)],
    ["Started", startText(run, row) + (started === null ? "" : `, after ${duration(started - submitted)}`)],
    ["Ended", moment(run, ended) + (ended === null ? "" : `, after ${duration(ended - (started ?? submitted))}`)],
    ["Requested", `${request(row)} processors`],
    ...Object.entries(told.facts ?? {}),
  ];
  const gained = told.gained_s ?? null;
  const gain = gained < 0 ? `nothing; it lost ${duration(-gained)}` : duration(gained);
  if (gained !== null) list.push(["Gained by resizing", gain]);
  const parts = list.flatMap(([name, value]) => [element("dt", name), element("dd", localTimes(value))]);
  return element("dl", "", { className: "facts" }, ...parts);
}

function sizesChart(steps, end, theme) {
  const canvas = element("canvas", "", { className: "sizes", role: "img" });
  canvas.ariaLabel = `Processors over time: ${steps.map(([, size]) => size).join(", ")}`;
  requestAnimationFrame(() => {
    const { context, width, height } = prepared(canvas), box = [26, 6, width - 30, height - 12];
    drawSteps(context, steps, end, { from: steps[0][0], to: end }, box, { fill: theme.accent, ink: theme.ink });
  });
  return canvas;
}

function iterations(times) {
  const max = Math.max(...times.map(([, seconds]) => seconds));
  const parts = times.flatMap(([size, value]) => [
    element("dt", `on ${size}`), element("dd", "", {}, element("meter", "", { max, value }), ` ${duration(value)}`),
  ]);
  return element("dl", "", { className: "facts" }, ...parts);
}

function sentences(run, { lines, left_out }) {
  const items = lines.map(([at, text]) => element("li", "", {},
    element("time", moment(run, at - run.origin)), element("span", localTimes(text))));
  if (left_out) items.unshift(element("li", `${left_out} earlier lines are left out`));
  return element("ol", "", { className: "lines" }, ...items);
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
    ["Last lines of its output", output && element("pre", output)],
  ];
  return [
    element("p", [row.name, row.user, row.state].filter(Boolean).join(", ")),
    ...advice.map((text) => element("p", text, { className: "advice" })),
    ...waiting.map((text) => element("p", localTimes(text))),
    facts(run, row, told ?? {}),
    ...sections.flatMap(([title, part]) => (part ? [element("h3", title), part] : [])),
  ];
}
