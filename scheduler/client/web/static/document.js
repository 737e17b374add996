// A document of runs: see scheduler/client/web/document.py for its form.

const FORMAT = 1;
const TYPES = { i4: Int32Array, u2: Uint16Array, u1: Uint8Array };

export const COMPUTING = 0, STARTING = 1, LEAVING = 2, LENT = 3, EXPECTED = 4;
export const KINDS = ["computes", "starts", "leaves", "step", "expected"];

// One run: columns of jobs and segments. Times that its methods return are seconds.
export class Run {
  constructor(header, column) {
    Object.assign(this, header);
    const columns = (parts, names) =>
      Object.fromEntries(names.map((name) => [name, column(parts[name])]));
    this.job = columns(header.jobs, ["number", "name", "user", "state", "requested", "least",
      "most", "submitted", "started", "ended", "expected"]);
    this.segment = columns(header.segments, ["job", "first", "count", "begin", "end", "kind"]);
    this.curve = Object.fromEntries(Object.entries(header.curves).map(([name, curve]) =>
      [name, { times: column(curve.times), values: column(curve.values) }]));
    this.pixels = header.image ? column(header.image[2]) : null;
    this.rowOf = new Map(Array.from(this.job.number, (number, row) => [number, row]));
    this.ofJob = null;
  }

  time(column, row) {
    const ticks = this.job[column][row];
    return ticks < 0 ? null : ticks * this.tick_s;
  }

  // The same fields as a row of api/v1/jobs.
  row(row) {
    const { job, jobs } = this;
    return {
      number: job.number[row],
      label: jobs.labels[row] ?? String(job.number[row]),
      name: jobs.names[job.name[row]],
      user: jobs.users[job.user[row]],
      state: jobs.states[job.state[row]],
      requested: job.requested[row],
      least: job.least[row],
      most: job.most[row],
      submitted: this.time("submitted", row),
      started: this.time("started", row),
      ended: this.time("ended", row),
      expected: this.time("expected", row),
      reason: jobs.reasons[row] ?? "",
    };
  }

  // Segment at a time and a processor; -1: none. Of several the last one is on top.
  at(time, processor) {
    const { begin, end, first, count } = this.segment;
    const tick = time / this.tick_s;
    for (let i = begin.length - 1; i >= 0; i--) {
      if (begin[i] <= tick && tick < end[i] && first[i] <= processor && processor < first[i] + count[i]) {
        return i;
      }
    }
    return -1;
  }

  // Indices of the segments of a job, by its row.
  segmentsOf(row) {
    if (this.ofJob === null) {
      this.ofJob = new Map();
      this.segment.job.forEach((job, i) => {
        if (!this.ofJob.has(job)) this.ofJob.set(job, []);
        this.ofJob.get(job).push(i);
      });
    }
    return this.ofJob.get(row) ?? [];
  }
}

// Decode a document; return its header, whose runs are `Run`.
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  if (header.format !== FORMAT) {
    throw new Error(`the data has format ${header.format}, this page reads ${FORMAT}: reload it`);
  }
  const column = ([kind, offset, count]) => new TYPES[kind](buffer, 4 + length + offset, count);
  header.runs = header.runs.map((run) => new Run(run, column));
  return header;
}

// Read the compressed document within a page that has no server; null: the page has one.
export async function embedded() {
  const element = document.getElementById("data");
  if (element === null) return null;
  const bytes = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return decode(await new Response(stream).arrayBuffer());
}

// Write a duration.
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "-";
  const sign = seconds < 0 ? "-" : "", s = Math.abs(seconds);
  if (s < 10) return `${sign}${s.toFixed(s < 1 ? 2 : 1)} s`;
  if (s < 120) return `${sign}${Math.round(s)} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 120) return `${sign}${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 72 ? `${sign}${hours} h ${minutes % 60} min` : `${sign}${(s / 86400).toFixed(1)} days`;
}

// Write a time of a run: by wall clock if the run was live, else since its beginning.
export function moment(run, seconds) {
  if (seconds === null || seconds === undefined) return "-";
  if (run.origin === null) return duration(seconds);
  const date = new Date(1000 * (run.origin + seconds));
  const today = new Date().toDateString() === date.toDateString();
  return today ? date.toLocaleTimeString() : date.toLocaleString();
}
