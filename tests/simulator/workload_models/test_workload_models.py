"""Workload models against their own formulas (Kolmogorov-Smirnov), and the traces made of them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log2
from pathlib import Path

import msgspec
import numpy as np
import pytest
import scipy
from click.testing import CliRunner, Result
from numpy.typing import NDArray
from one_machine import run as simulate
from paths import SHARED

from reshape.errors import ConfigError, ReshapeError
from reshape.speedup import Prio
from scheduler.policies.scenarios import scenario
from simulator.commands.workload import workload
from simulator.engine.costs import NO_COSTS, Costs, ResizeCost
from simulator.study.study import SHIPPED
from simulator.traces import swf
from simulator.traces.normalise import Rules, machine_size, normalise
from simulator.workload_models import workload_file
from simulator.workload_models.drawn import arrival_for_queue, factors, poisson, requirements
from simulator.workload_models.estimates import HEAD, POPULARITY, TsafrirEstimates, popularity
from simulator.workload_models.generate import (
    BUCKET_S,
    BUCKETS,
    LONGEST_PAUSE,
    LONGEST_RUN,
    Feitelson96,
    Lublin,
    TraceRequest,
    make,
    model_of,
)
from simulator.workload_models.workload import PrioWorkload

N = 20000
LEVEL = 0.01  # the seeds are fixed, so a wrong law fails and a right one never does
TRACES = SHARED / "traces"
Floats = NDArray[np.float64]


def follows(values: Floats, cdf: Callable[[Floats], Floats] | str, *arguments: object) -> None:
    assert scipy.stats.kstest(values, cdf, arguments).pvalue > LEVEL  # type: ignore[arg-type]


def follows_shares(values: NDArray[np.int64], shares: Floats) -> None:
    """Whole numbers from 1: the distance of the two step functions, against KS's bound."""
    found = np.bincount(values, minlength=len(shares) + 1)[1:] / len(values)
    assert len(found) == len(shares)
    distance = np.abs(np.cumsum(found) - np.cumsum(shares)).max()
    assert distance < scipy.stats.kstwobign.isf(LEVEL) / np.sqrt(len(values))


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_feitelson_sizes_and_run_times() -> None:
    model = Feitelson96(processors=128, repeat_order=0.0)
    drawn = model.generate(N, rng())
    weights = np.array([(2.0 * n if log2(n).is_integer() else 1.0) / n**1.5 for n in range(1, 129)])
    follows_shares(drawn.processors, weights / weights.sum())
    short = 0.95 - 0.2 * drawn.processors / 128
    t = drawn.run / 600.0
    follows(1 - short * np.exp(-t) - (1 - short) * np.exp(-t / 7), "uniform")
    assert np.corrcoef(drawn.processors, drawn.run)[0, 1] > 0.02, "the larger, the longer"


def test_feitelson_repetitions() -> None:
    drawn = Feitelson96(most_repeats=100).generate(N, rng())
    assert drawn.executable is not None
    _, repeats = np.unique(drawn.executable, return_counts=True)
    shares = np.arange(1.0, 101) ** -2.5
    follows_shares(repeats[:-1], shares / shares.sum())  # the last is cut off
    for job in (1, 7):
        mine = drawn.executable == job
        assert len(np.unique(drawn.run[mine])) == len(np.unique(drawn.processors[mine])) == 1


def lublin_sizes(model: Lublin) -> Floats:
    """Shares of the sizes, from the two-stage uniform's measure of what becomes each size."""
    low, middle, high = model.stages

    def up_to(u: float) -> float:
        first = np.clip((u - low) / (middle - low), 0, 1)
        second = np.clip((u - middle) / (high - middle), 0, 1)
        return float(model.first * first + (1 - model.first) * second)

    shares = np.zeros(model.processors)
    shares[0] = model.serial
    for n in range(1, model.processors + 1):
        free = up_to(log2(n + 0.5)) - up_to(log2(n - 0.5))
        shares[n - 1] += (1 - model.serial - model.power_of_2) * free
        if log2(n).is_integer():
            power = up_to(log2(n) + 0.5) - up_to(log2(n) - 0.5)
            shares[n - 1] += model.power_of_2 * power
    return shares


@pytest.mark.parametrize("processors", [100, 128, 256])
def test_lublin_sizes(processors: int) -> None:
    model = Lublin(processors=processors)
    shares = lublin_sizes(model)
    shares[-1] += 1 - shares.sum()  # rounded up beyond the machine
    follows_shares(model.sizes(N, rng()), shares)


def test_lublin_run_times() -> None:
    model = Lublin(processors=128)
    sizes = model.sizes(N, rng())
    first = np.clip(-0.0054 * sizes + 0.78, 0, 1)

    def mixture(x: Floats | float) -> Floats:
        gammas = scipy.stats.gamma(4.2, scale=0.94), scipy.stats.gamma(312, scale=0.03)
        return np.asarray(first * gammas[0].cdf(x) + (1 - first) * gammas[1].cdf(x))

    logs = np.log(model.run_times(sizes, rng(2)))
    follows(mixture(logs) / mixture(LONGEST_RUN), "uniform")


def test_lublin_pauses_and_the_daily_cycle() -> None:
    model = Lublin()
    logs = np.log(model.pauses(N, rng()))
    gamma = scipy.stats.gamma(10.2303 * 1.0225, scale=0.4871)
    follows(gamma.cdf(logs) / gamma.cdf(LONGEST_PAUSE), "uniform")
    hours = model.hours()
    assert hours.mean() == pytest.approx(1)
    assert 22 <= int(hours.argmax()) <= 30, "noon, in half hours"
    assert 6 <= int(hours.argmin()) <= 11, "before dawn"


def test_lublin_arrivals_equal_the_payment_of_points() -> None:
    """A slow twin as in the model's description: half hours are paid for one by one."""
    model = Lublin()
    hours, pauses = model.hours(), model.pauses(300, rng(4))
    at, paid = 0, 0.0  # half hour, and what of it has passed
    expected = []
    for points in (pauses / BUCKET_S).tolist():
        left = points + paid * hours[at % BUCKETS]
        while left > hours[at % BUCKETS]:
            left -= hours[at % BUCKETS]
            at += 1
        paid = left / hours[at % BUCKETS]
        expected.append((at + paid) * BUCKET_S)
    np.testing.assert_allclose(model.arrivals(300, rng(4)), expected, rtol=1e-9)


def test_lublin_is_like_the_authors_own_trace() -> None:
    path = TRACES / "lublin_256.swf.gz"
    if not path.is_file():
        pytest.skip("the reference trace is not in ../shared beside the repository")
    columns = swf.read(path).columns
    drawn = Lublin(processors=256).generate(len(columns["job"]), rng())
    assert drawn.submitted is not None
    sizes = columns["processors"]
    assert drawn.processors.mean() == pytest.approx(sizes.mean(), rel=0.05)
    assert (drawn.processors == 1).mean() == pytest.approx((sizes == 1).mean(), abs=0.02)
    assert drawn.run.mean() == pytest.approx(columns["run"].mean(), rel=0.1)
    for ours, theirs in ((drawn.run, columns["run"]), (drawn.submitted, columns["submit"])):
        quantiles = np.quantile(
            np.diff(ours) if ours is drawn.submitted else ours, [0.25, 0.5, 0.9]
        )
        other = np.quantile(
            np.diff(theirs) if ours is drawn.submitted else theirs, [0.25, 0.5, 0.9]
        )
        np.testing.assert_allclose(quantiles, other, rtol=0.1)


def test_tsafrir_estimates() -> None:
    model = TsafrirEstimates(longest_s=64800)
    assert [model.different(n) for n in (30, 600, 10000, N, 250000, 10**6)] == [
        HEAD, 28, 90, 132, 565, 565
    ]  # fmt: skip
    different = model.different(N)
    shares = model.shares(different)
    ranks = np.arange(2, HEAD + 1)
    expected = (14.0491 * np.exp(-0.177531 * ranks) + 0.462513) / 100
    np.testing.assert_allclose(shares[1:HEAD], expected, rtol=1e-9)
    assert shares[:HEAD].sum() == pytest.approx(0.89)
    tail = np.arange(HEAD + 1, different + 1) ** -2.267
    np.testing.assert_allclose(shares[HEAD:], 0.11 * tail / tail.sum(), rtol=1e-9)
    popular = model.popular(different, rng())
    assert popular[0] == 64800
    assert len(np.unique(popular)) == len(popular) == different
    # Jobs shorter than any estimate leave the estimates as they were drawn.
    estimates = model.generate(np.full(N, 0.5), rng())
    rank_of = {int(time): rank for rank, time in enumerate(model.popular(different, rng()), 1)}
    follows_shares(np.array([rank_of[int(e)] for e in estimates]), model.shares(len(popular)))


def test_tsafrir_times() -> None:
    """The head by hand for a maximum of 18 h, and of 10 h; the rest against its law."""
    hours = [1, 2, 3, 4, 5, 6, 8, 10, 12]
    below = [5 / 60, 10 / 60, 0.25, 20 / 60, 0.5, *hours]
    whole = [18, *below, 13, 14, 15, 16, 17]  # 15 by 5 h, then 16 and 14, then 17 and 13
    assert TsafrirEstimates(longest_s=64800).most_popular() == pytest.approx(
        [3600 * time for time in whole]
    )
    tens = [460, 500, 520, 540, 560, 580]
    assert [time // 60 for time in TsafrirEstimates(longest_s=36000).most_popular()] == [
        600, 5, 10, 15, 20, 30, 60, 120, 180, 240, 300, 360, 420, *sorted([480, *tens])
    ]  # fmt: skip
    model = TsafrirEstimates(longest_s=64800)
    rest = np.array(sorted(model.rest(565, model.most_popular())))
    a = 1 + 12.1039 * 565**-0.6026
    law = [64800 * (a - 1) * x / (a - x) for x in np.arange(1, 546) / 545]
    assert np.abs(rest - law[: len(rest)]).max() <= 60
    with pytest.raises(ValueError, match="longest_s must be >= 5701, got 5700"):
        TsafrirEstimates(longest_s=5700)


def test_tsafrir_popularity_is_as_in_the_logs() -> None:
    assert all(sorted(log) == list(range(1, HEAD + 1)) for log in POPULARITY)
    for seed in range(100):
        ranks = popularity(rng(seed))
        assert sorted(ranks) == list(range(1, HEAD + 1))
        assert ranks[0] == 1
        for place, rank in enumerate(ranks[1:], 1):
            places = [log.index(rank) for log in POPULARITY]
            assert min(places) <= place
            late = [
                r for r in ranks[place + 1 :] if max(log.index(r) for log in POPULARITY) < place
            ]
            assert not late or max(places) <= place, "what is due goes first"


def test_no_job_exceeds_its_estimate() -> None:
    run = rng().exponential(9000, 3000)
    model = TsafrirEstimates(longest_s=36000)
    estimates = model.generate(run, rng())
    assert (estimates >= run).all()
    assert (estimates[run <= 36000] <= 36000).all()


def test_requirements_and_arrivals() -> None:
    uniform, exponential = (factors(N, 2, law, rng()) for law in ("uniform", "exponential"))
    follows(uniform.ravel(), "uniform")
    follows(exponential.ravel(), scipy.stats.expon(scale=0.5).cdf)
    sizes = np.arange(1, N + 1) % 128 + 1
    needs = requirements(sizes, 128, uniform)
    assert needs.min() == 1
    assert (needs <= sizes[:, np.newaxis]).all()
    assert requirements(sizes, 128, exponential).max() == 128
    follows(np.diff(poisson(N, rng(), 30.0)), scipy.stats.expon(scale=30.0).cdf)


def test_a_rate_for_a_queue() -> None:
    asked: list[float] = []

    def queue_at(seconds: float) -> float:
        asked.append(seconds)
        return 1000.0 / seconds**2

    found = arrival_for_queue(40.0, queue_at, guess_s=1.0, tolerance=0.01)
    assert found == pytest.approx(5.0, rel=0.01)
    assert len(asked) == len(set(asked))
    with pytest.raises(ReshapeError, match="no rate of arrival gives a mean queue of 40"):
        arrival_for_queue(40.0, lambda seconds: min(10.0, 1 / seconds), guess_s=1.0)


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("lublinn", {}, "unknown model 'lublinn'; did you mean lublin"),
        ("lublin", {"sereal": 1}, "lublin.sereal: unknown field; did you mean serial"),
        ("lublin", {"serial": "2"}, "serial must be >= 0 and <= 1, got 2.0"),
        ("feitelson96", {"processors": 0}, "processors must be >= 1, got 0"),
        ("feitelson96", {"p0": 0.1}, "p0 and p0 - slope must be"),
    ],
)
def test_wrong_models(name: str, parameters: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        model_of(name, parameters)


def test_a_load_and_a_queue_are_met() -> None:
    trace = make(TraceRequest("lublin", 400, 3, {"processors": 64}, load=0.8))
    jobs, _ = normalise(trace, 64)
    span = jobs.submitted[-1] - jobs.submitted[0]
    assert (jobs.run * jobs.processors).sum() / (64 * span) == pytest.approx(0.8, rel=0.02)
    wanted = TraceRequest("feitelson96", 300, 3, {"processors": 64}, queue=5, resources=1)
    assert any("mean time between submissions" in line for line in make(wanted).header)
    with pytest.raises(ConfigError, match="load: must be > 0 and finite, got -1"):
        make(TraceRequest("lublin", 10, 1, load=-1))
    with pytest.raises(ConfigError, match="queue: must be > 0 and finite, got inf"):
        make(TraceRequest("lublin", 10, 1, queue=inf))


def test_generate_command(tmp_path: Path) -> None:
    """The same wishes give the same bytes, readable with all that was asked for."""
    files = [tmp_path / "a.swf.gz", tmp_path / "b.swf.gz"]
    words = "feitelson96 --jobs 200 --seed 5 --processors 64 --resources 2 --law exponential"
    for file in files:
        arguments = [
            *words.split(),
            "--estimates",
            "tsafrir",
            "--set",
            "slope=0.1",
            "-o",
            str(file),
        ]
        result = CliRunner().invoke(workload, ["generate", *arguments])
        assert result.exit_code == 0, result.output
    assert files[0].read_bytes() == files[1].read_bytes()
    trace = swf.read(files[0])
    assert trace.capacities() == {"r2": 64, "r3": 64}
    assert any("model feitelson96" in line for line in trace.header)
    jobs, report = normalise(trace, 64)
    assert report.kept == len(jobs) == 200
    assert (jobs.estimate >= jobs.run).all()
    specs = jobs.specs()
    assert {frozenset(spec.resources) for spec in specs} == {frozenset({"r2", "r3"})}
    for wrong, told in (
        (["--load", "1", "--queue", "4"], "give one"),
        (["--longest", "6000"], "--longest: has no effect without estimates: tsafrir"),
        (["--law", "exponential"], "--law: has no effect without resources"),
        (["--longest", "600", "--estimates", "tsafrir"], "600 is not in the range x>=5701"),
        (["--set", "slope"], "has no value"),
        (["-o", str(tmp_path / "c.txt")], "does not end in .swf"),
    ):
        result = CliRunner().invoke(workload, ["generate", "lublin", "-o", "x.swf", *wrong])
        assert result.exit_code == 2
        assert told in result.output


def generated(*words: str) -> Result:
    return CliRunner().invoke(workload, ["generate", *words])


def test_prio_from_the_command(tmp_path: Path) -> None:
    """A file of the very jobs that the study of the same seed runs.

    Nothing is lost by writing but what has no effect on rigid jobs.
    """
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    words = "prio --jobs 60 --seed 3 --set resizable=0.5 --set user_priorities=true"
    for file in files:
        result = generated(*words.split(), "--set", "speedup=prio:alpha=0.75", "-o", str(file))
        assert result.exit_code == 0, result.output
    assert files[0].read_bytes() == files[1].read_bytes()
    read = workload_file.read(files[0])
    model = PrioWorkload(jobs=60, resizable=0.5, user_priorities=True, speedup=Prio(alpha=0.75))
    replaced = msgspec.structs.replace
    assert read.jobs == [
        job
        if job.spec.resizable
        else replaced(job, speedup=None, spec=replaced(job.spec, topology=None))
        for job in model.generate(rng(3))
    ]
    assert (read.processors, read.costs) == (400, NO_COSTS)
    assert 0 < sum(job.spec.resizable for job in read.jobs) <= 30
    costs = Costs.constant(ResizeCost(1.0, 0.5, 1e9), 2.0, 3.0)
    whole = msgspec.structs.replace(read, costs=costs)
    files[1].write_bytes(workload_file.encode(whole, "again"))
    assert workload_file.read(files[1]) == whole
    assert generated("prio", "-o", str(files[1])).output.endswith("120 jobs of model prio\n")


def test_prio_arrivals_and_order() -> None:
    """Poisson arrivals; the kinds, of exact shares, and the resizable jobs are anywhere in them."""
    jobs = PrioWorkload(jobs=N, resizable=0.25).generate(rng(7))
    at = np.array([job.at for job in jobs])
    follows(np.diff(at, prepend=0.0), scipy.stats.expon(scale=32.0).cdf)
    for chosen in (
        [job.spec.name == "small" for job in jobs],
        [job.spec.topology.kind == "power-of-2" for job in jobs],
        [job.spec.resizable for job in jobs],
        [job.spec.user == "platinum" for job in jobs],
    ):
        follows((np.flatnonzero(chosen) + 0.5) / N, "uniform")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--load 0.9 -o x.yaml", "--load does not apply to model prio"),
        ("--estimates tsafrir -o x.yaml", "--estimates does not apply to model prio"),
        ("-o x.swf", "does not end in .yaml"),
        ("--set resizeable=1 -o x.yaml", "prio.resizeable: unknown field; did you mean resizable"),
        ("--set expand_step=inf -o x.yaml", "prio: expand_step must be >= 0 and finite"),
        ("--processors 20 -o x.yaml", "processors must be >= 136, got 20"),
        ("--set speedup=amdahl -o x.yaml", "prio.speedup.model: Invalid value 'amdahl'"),
        ("--set speedup=pro -o x.yaml", "unknown speedup model 'pro'; did you mean prio"),
    ],
)
def test_wrong_words_for_prio(words: str, told: str) -> None:
    result = generated("prio", *words.split())
    assert result.exit_code != 0
    assert told in result.output + str(result.exception)


RESOURCES = "; Resources: memory=100 licences=2\n"
LINE = "{} 0 -1 10 1 -1 -1 1 20 -1 1 1 1 -1 -1 -1 -1 -1"


def traced(tmp_path: Path, *lines: str, header: str = RESOURCES) -> Path:
    path = tmp_path / "t.swf"
    path.write_text(header + "".join(line + "\n" for line in lines))
    return path


def test_a_trace_with_further_resources(tmp_path: Path) -> None:
    plain = [LINE.format(n) for n in (1, 2, 3, 4)]
    rows = [f"{plain[0]} 40 1", f"{plain[1]} -1 0", plain[2], f"{plain[3]} 101 0"]
    trace = swf.read(traced(tmp_path, *rows))
    assert trace.columns["resource:memory"].tolist() == [40, -1, -1, 101]
    assert trace.oddities.short_lines == 1
    jobs, report = normalise(trace, 4)
    assert report.larger == 1
    assert [amounts.tolist() for amounts in jobs.resources.values()] == [[40, 0, 0], [1, 0, 0]]
    assert [dict(spec.resources) for spec in jobs.specs()][:2] == [
        {"memory": 40, "licences": 1},
        {},
    ]
    capped, _ = normalise(trace, 4, msgspec.structs.replace(Rules(), larger="cap"))
    assert [amounts[-1] for amounts in capped.resources.values()] == [100, 0]
    with pytest.raises(ReshapeError, match="job 4 asks for more of a further resource"):
        normalise(trace, 4, msgspec.structs.replace(Rules(), larger="error"))
    swf.write(tmp_path / "again.swf", trace)
    again = swf.read(tmp_path / "again.swf")
    assert again.columns["resource:memory"].tolist() == [40, -1, -1, 101]
    assert [*jobs.first(2).resources] == ["memory", "licences"]


def test_malformed_resources(tmp_path: Path) -> None:
    line = LINE.format(1)
    with pytest.raises(ReshapeError, match=r"t.swf:1: 'memory' has no value; write memory=VALUE"):
        swf.read(traced(tmp_path, line, header="; Resources: memory\n"))
    with pytest.raises(ReshapeError, match=r"t.swf:2: field 20 \(resource:licences\): 'x' is no"):
        swf.read(traced(tmp_path, f"{line} 1 x"))
    with pytest.raises(ReshapeError, match=r"t.swf:2: 21 fields, not 20"):
        swf.read(traced(tmp_path, f"{line} 1 1 1"))


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative"])
def test_one_resource_gives_the_schedule_of_the_plain_path(policy: str) -> None:
    """K = 1 on the trace that comes with us, by a resource that mirrors the processors."""
    plain = swf.read(SHIPPED / "traces" / "synthetic.swf")
    size = machine_size(plain)
    asked = np.where(
        plain.columns["requested_processors"] > 0,
        plain.columns["requested_processors"],
        plain.columns["processors"],
    )
    columns = plain.columns | {"resource:mirror": asked}
    header = [*plain.header, f"; Resources: mirror={size}"]
    mirrored = swf.Trace(plain.path, header, columns, plain.oddities)
    starts = [simulate(trace, size, scenario(policy)).started for trace in (plain, mirrored)]
    np.testing.assert_array_equal(*starts)
