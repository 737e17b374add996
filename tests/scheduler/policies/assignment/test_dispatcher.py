"""Task assignment policies and the dispatcher, on sites with given answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest
from fixed_estimates import Constant

from reshape.errors import ConfigError, ReshapeError
from scheduler.model.events import JobSpec
from scheduler.model.job import Job
from scheduler.policies.assignment.dispatcher import Dispatcher, DispatchRules
from scheduler.policies.assignment.interface import AskedSite, SiteRequest
from scheduler.policies.assignment.policies import (
    HomeSite,
    LeastLoad,
    LessCostSld,
    LessJobsInQueue,
    LessSlowdown,
    LessSubmittedJobs,
    LessWaitTime,
    LessWorkLeft,
    MultipleRequests,
    PerUser,
    Random,
    SitaE,
)


@dataclass
class Answering:
    """A site with given answers, which counts the quotes."""

    name: str
    processors: int = 8
    cpu_factor: float = 1.0
    price: float = 1.0
    counts: tuple[int, int] = (0, 0)
    work: float = 0.0
    used: float = 0.0
    wait: float = 0.0
    quotes: list[int] = field(default_factory=list)

    def submitted(self) -> int:
        return self.counts[0]

    def queued(self) -> int:
        return self.counts[1]

    def free(self) -> int:
        return self.processors

    def work_left(self) -> float:
        return self.work

    def load(self) -> float:
        return self.used

    def wait_s(self, request: SiteRequest, at_most_s: float = inf) -> float:
        self.quotes.append(request.job)
        return self.wait


def request(run_s: float = 3600.0, **options: object) -> SiteRequest:
    return SiteRequest(1, JobSpec(2, run_s, user="u"), run_s, **options)  # type: ignore[arg-type]


SITES = [
    Answering("a", counts=(5, 2), work=50.0, used=0.5, wait=600.0, price=3.0),
    Answering("b", counts=(4, 3), work=90.0, used=0.9, wait=60.0, price=2.0, cpu_factor=2.0),
    Answering("c", counts=(9, 1), work=70.0, used=0.1, wait=900.0, price=1.0, cpu_factor=4.0),
]


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (LessSubmittedJobs(), "b"),
        (LessJobsInQueue(), "c"),
        (LessWorkLeft(), "a"),
        (LeastLoad(), "c"),
        (LessWaitTime(), "b"),
        (LessSlowdown(), "b"),  # 60 s before 7200 s
        (HomeSite(), "a"),
    ],
)
def test_a_policy_chooses_the_least_value(policy: object, name: str) -> None:
    assert policy.assign(request(), SITES).name == name  # type: ignore[attr-defined]


def test_origin_prefers_the_home_site() -> None:
    assert HomeSite().assign(request(origin="c"), SITES).name == "c"


def test_cost_and_slowdown_are_multiplied_within_the_limit() -> None:
    # Products: (1 + 1/6) * 6, (1 + 1/120) * 8, (1 + 1/16) * 8.
    assert LessCostSld().assign(request(), SITES).name == "a"
    assert LessCostSld().assign(request(max_cost=7.0), SITES).name == "a"
    assert LessCostSld().assign(request(max_cost=1.0), SITES).name == "a"  # the cheapest
    dear = [Answering("x", price=9.0, wait=1e6), Answering("y", price=8.0, wait=1e7)]
    assert LessCostSld().assign(request(max_cost=1.0), dear).name == "y"


def test_ties_are_broken_by_order_load_or_size() -> None:
    equal = [Answering("a", 2, used=0.5), Answering("b", 8, used=0.7), Answering("c", 4)]
    assert LessWaitTime().assign(request(), equal).name == "a"
    assert LessWaitTime(ties="load").assign(request(), equal).name == "c"
    assert LessWaitTime(ties="largest").assign(request(), equal).name == "b"


def test_round_robin_skips_sites_that_cannot_run_a_job() -> None:
    policy = LessSubmittedJobs(rule="turn")
    names = [policy.assign(request(), sites).name for sites in (SITES, SITES, SITES[:2], SITES)]
    assert names == ["a", "b", "a", "b"]


def test_random_repeats_with_its_seed() -> None:
    def draws(seed: int) -> list[str]:
        policy = Random(seed)
        return [policy.assign(request(), SITES).name for _ in range(30)]

    assert draws(1) == draws(1) != draws(2)
    assert set(draws(1)) == {"a", "b", "c"}


def test_sita_gives_short_jobs_to_small_sites_that_can_run_them() -> None:
    policy = SitaE(cutoffs_s=(100.0, 1000.0))
    sites = [Answering("large", 64), Answering("small", 4), Answering("middle", 16)]
    assert policy.assign(request(100.0), sites).name == "small"
    assert policy.assign(request(101.0), sites).name == "middle"
    assert policy.assign(request(5000.0), sites).name == "large"
    assert policy.assign(request(1.0), sites[::2]).name == "middle"
    with pytest.raises(ConfigError, match="cutoffs_s"):
        SitaE().assign(request(), sites)


def test_users_keep_their_metric() -> None:
    chosen = {
        name: PerUser().assign(SiteRequest(1, JobSpec(1, 60.0, user=name), 60.0), SITES).name
        for name in ("a", "b", "c", "d")
    }
    assert len(set(chosen.values())) > 1
    assert chosen["a"] == chosen["d"]


def test_several_sites_are_chosen_by_their_load() -> None:
    chosen = MultipleRequests(2).assign(request(), SITES)
    assert [site.name for site in chosen] == ["c", "a"]  # type: ignore[union-attr]


def test_only_some_sites_are_asked() -> None:
    sites = [Answering(str(i), wait=float(i + 1)) for i in range(50)]
    dispatcher = Dispatcher(LessWaitTime(), DispatchRules(ask=5), seed=3)
    for number in range(20):
        dispatcher.choose(SiteRequest(number, JobSpec(1, 60.0), 60.0), sites)
    assert sum(len(site.quotes) for site in sites) == 100
    home = Dispatcher(LessWaitTime(), DispatchRules(ask=1, affinity=True))
    assert home.choose(request(origin="40"), sites)[0].name == "40"


def test_predictions_replace_estimates_for_policies_that_predict() -> None:
    job = Job(1, JobSpec(2, 500.0), 0.0)
    assert Dispatcher(LessWaitTime(), None, Constant(30.0)).expected_s(job) == 500.0
    assert Dispatcher(LessSlowdown(), None, Constant(30.0)).expected_s(job) == 30.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DispatchRules(ask=0), "ask must be >= 1, got 0"),
        (lambda: MultipleRequests(0), "k must be >= 1"),
    ],
)
def test_a_parameter_out_of_range_is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_a_request_without_limit_has_none() -> None:
    assert request().max_cost == inf


@dataclass
class OwnPolicy:
    """A user-defined policy that chooses the last site, and tries to change it if told so."""

    changes: str = ""

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> AskedSite:
        site = sites[-1]
        if self.changes:
            setattr(site, self.changes, 1)
        assert site.wait_s(request) == 5.0
        assert (site.submitted(), site.queued(), site.free()) == (3, 4, 8)
        assert (site.work_left(), site.load(), site.cpu_factor, site.price) == (6.0, 7.0, 2.0, 9.0)
        return site


def test_a_user_defined_policy_asks_sites_and_cannot_change_them() -> None:
    sites = [Answering("a"), Answering("b", 8, 2.0, 9.0, (3, 4), 6.0, 7.0, 5.0)]
    request = SiteRequest(1, JobSpec(2, 10.0), 10.0)
    assert Dispatcher(OwnPolicy()).choose(request, sites) == [sites[1]]
    for field_name in ("processors", "cpu_factor", "wait_s", "other"):
        with pytest.raises(ReshapeError, match="failed in assign with AttributeError"):
            Dispatcher(OwnPolicy(field_name)).choose(request, sites)


@pytest.mark.parametrize(
    ("choose", "says"),
    [
        (lambda sites: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda sites: sites[0].wait, "AttributeError: 'ShownSite' object has no attribute 'wait'"),
        (lambda sites: None, "TypeError: it returned None, and not one or several of the sites"),
        (lambda sites: "a", "TypeError: it returned 'a', and not one"),
        (lambda sites: [], r"TypeError: it returned \[\], and not one"),
    ],
)
def test_a_user_defined_policy_that_fails_is_named_with_its_line(
    choose: Callable[[Any], Any], says: str
) -> None:
    class Wrong:
        def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Any:
            return choose(sites)

    said = rf"assignment policy .*Wrong failed in assign with {says}.*test_dispatcher.py:\d+\); c"
    with pytest.raises(ReshapeError, match=said):
        Dispatcher(Wrong()).choose(request(), SITES)


def test_an_attribute_of_a_policy_without_the_base_is_refused() -> None:
    class Pulling:
        pulls = True

        def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> AskedSite:
            return sites[0]

    with pytest.raises(ConfigError, match=r"Pulling\.pulls has no effect: derive Pulling from"):
        Dispatcher(Pulling())  # type: ignore[arg-type]
