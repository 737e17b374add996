// The table of jobs, in pages; filters and pages are made where the jobs are.

import { duration, moment } from "./document.js";
import { element, localTimes } from "./story.js";

export const PAGE = 100;

const COLUMNS = [
  ["job", (run, row) => row.label],
  ["name", (run, row) => row.name],
  ["user", (run, row) => row.user],
  ["state", (run, row) => row.state],
  ["processors", (run, row) => (row.least === row.most ? row.requested : `${row.requested} (${row.least}-${row.most})`)],
  ["submitted", (run, row) => moment(run, row.submitted)],
  ["waits", (run, row) => duration((row.started ?? row.ended ?? run.now) - row.submitted)],
  ["start", (run, row) => (row.started === null && row.expected !== null ? `expected ${moment(run, row.expected)}` : moment(run, row.started))],
  ["end", (run, row) => moment(run, row.ended)],
  ["reason", (run, row) => localTimes(row.reason)],
];

export function isMatch(row, query) {
  const group = row.state === "PENDING" ? "queued"
    : ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"].includes(row.state) ? "ended" : "running";
  if (query.group !== "all" && query.group !== group) return false;
  const text = query.text.toLowerCase();
  return !text || [row.label, row.name, row.user, row.state].some((field) => field.toLowerCase().includes(text));
}

// Fill a table with rows; `open` is called with the number of the job that is chosen.
export function fillTable(table, run, rows, { open, light, lit }) {
  const columns = COLUMNS.filter(([name, text]) => name === "job" || rows.some((row) => !["", "-"].includes(text(run, row))));
  const head = element("tr");
  for (const [name] of columns) {
    const cell = element("th", name);
    cell.scope = "col";
    head.append(cell);
  }
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    line.dataset.job = row.number;
    if (row.number === lit) line.className = "lit";
    for (const [name, text] of columns) {
      const cell = element(name === "job" ? "th" : "td");
      cell.className = name;
      if (name === "job") {
        const button = element("button", text(run, row));
        button.type = "button";
        button.setAttribute("aria-label", `Story of job ${row.label}`);
        button.addEventListener("click", () => open(row.number));
        cell.scope = "row";
        cell.append(button);
      } else {
        cell.textContent = text(run, row);
      }
      line.append(cell);
    }
    line.addEventListener("pointerenter", () => light(row.number));
    line.addEventListener("pointerleave", () => light(null));
    body.append(line);
  }
  table.replaceChildren(element("thead", "", head), body);
}
