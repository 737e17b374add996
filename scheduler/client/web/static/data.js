// The data of runs: see scheduler/client/web/document.py for its form. Times are seconds, null: none.

const FORMAT = 1;
const NO_TIME = -(2 ** 31);
const COMPUTING = 0, STARTING = 1, LEAVING = 2, LENT = 3, EXPECTED = 4;
const KINDS = ["computes", "starts", "leaves", "step", "expected"];
const MOMENT = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g;

// One run: columns of jobs, segments and curves.
class Run {
  constructor(header, column) {
    Object.assign(this, header);
    const table = (places) => Object.fromEntries(
      Object.entries(places).map(([name, place]) => [name, column(place, header.tick_s)]));
    this.jobs = table(header.jobs);
    this.segments = table(header.segments);
    this.curves = Object.entries(header.curves).map(([name, curve]) => [name, table(curve)]);
    this.pixels = header.image ? column(header.image[2]) : null;
    this.rowOf = new Map(Array.from(this.jobs.number, (number, row) => [number, row]));
  }

  // The same fields as a row of api/v1/jobs.
  row(row) {
    return Object.fromEntries(Object.entries(this.jobs).map(([name, values]) => [name, values[row]]));
  }

  // Segment at a time and a processor; -1: none. Of several the last one is on top.
  at(time, processor) {
    const { begin, end, first, count } = this.segments;
    return begin.findLastIndex((from, i) => from <= time && time < end[i]
      && first[i] <= processor && processor < first[i] + count[i]);
  }

  // Indices of the segments of a job, by its number.
  segmentsOf(number) {
    const row = this.rowOf.get(number), found = [];
    this.segments.job.forEach((job, i) => { if (job === row) found.push(i); });
    return found;
  }

  // Sizes of a job over time by its segments, as (time, size).
  sizesOf(number) {
    const { begin, end, count, kind } = this.segments, changes = new Map();
    for (const i of this.segmentsOf(number).filter((each) => kind[each] !== EXPECTED)) {
      changes.set(begin[i], (changes.get(begin[i]) ?? 0) + count[i]);
      changes.set(end[i], (changes.get(end[i]) ?? 0) - count[i]);
    }
    let size = 0;
    return [...changes].sort(([one], [other]) => one - other).map(([at, change]) => [at, (size += change)]);
  }
}

// Decode a document; return its header, whose runs are `Run`.
function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  if (header.format !== FORMAT) {
    throw new Error(`the data has format ${header.format}, this page reads ${FORMAT}: reload it`);
  }
  const column = ([kind, offset, count, texts], tick_s) => {
    const place = 4 + length + offset;
    if (kind === "u1") return new Uint8Array(buffer, place, count);
    const values = new Int32Array(buffer, place, count);
    if (kind === "text") return Array.from(values, (i) => texts[i]);
    if (kind === "time") return Array.from(values, (ticks) => (ticks === NO_TIME ? null : ticks * tick_s));
    return values;
  };
  header.runs = header.runs.map((run) => new Run(run, column));
  return header;
}

// Read the compressed document within a page that has no server; null: the page has one.
async function embedded() {
  const data = document.getElementById("data");
  if (data === null) return null;
  const bytes = Uint8Array.from(atob(data.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return decode(await new Response(stream).arrayBuffer());
}

const labelOf = (row) => row.label || String(row.number);

// Queued, running or ended.
const groupOf = (row) => (row.ended !== null ? "ended" : row.started !== null ? "running" : "queued");

// Write a duration.
function duration(seconds) {
  const s = Math.abs(seconds), sign = seconds < 0 ? "-" : "";
  if (s < 10) return `${sign}${s.toFixed(s < 1 ? 2 : 1)} s`;
  if (s < 120) return `${sign}${Math.round(s)} s`;
  const minutes = Math.round(s / 60), hours = Math.floor(minutes / 60);
  if (minutes < 120) return `${sign}${minutes} min`;
  return hours < 72 ? `${sign}${hours} h ${minutes % 60} min` : `${sign}${(s / 86400).toFixed(1)} days`;
}

// Write a time of a run: by wall clock if the run was live, else since its beginning.
function moment(run, seconds) {
  if (seconds === null) return "-";
  if (run.origin === null) return duration(seconds);
  const date = new Date(1000 * (run.origin + seconds));
  const isToday = new Date().toDateString() === date.toDateString();
  return isToday ? date.toLocaleTimeString() : date.toLocaleString();
}

// Show moments within a sentence, which are UTC, by the clock of the reader.
const localTimes = (text) => text.replace(MOMENT, (found) => new Date(found).toLocaleString());

const counted = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;
