"""Steps of a job script on another host, where it has the key of jobs and its token alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster import Cluster
from host_programs import skip_without_hosts

pytestmark = pytest.mark.hosts

SCRIPT = """
reshape run -n 2 hostname
reshape run -n 1 sh -c 'hostname; until test -e go; do sleep 0.05; done' & sleep=$!
reshape run -n 1 sh -c 'hostname; touch go' && wait $sleep
got=$(reshape run -n 1 sh -c 'echo piped; exit 4'); echo $got $?
reshape queue 2>/dev/null || echo no more than its steps
"""


@pytest.fixture(scope="module", autouse=True)
def _can_make_hosts() -> None:
    skip_without_hosts()


def test_steps_of_a_script_on_other_hosts(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=1) as cluster:
        job = cluster.submit(["bash", "-c", SCRIPT], 2, script=True)
        ended = cluster.wait(job)
        output = cluster.output(job)
        assert ended.state == "COMPLETED", output
        lines = [line for line in output.splitlines() if not line.startswith("reshape:")]
        assert sorted(lines[:2]) == ["n1", "n2"]
        assert sorted(lines[2:4]) == ["n1", "n2"], "side by side, each on a host of its own"
        assert lines[4:] == ["piped 4", "no more than its steps"]
        codes = [cluster.job(number).exit_code for _, number in cluster.job(job).steps]
        assert codes == [0, 0, 0, 4]
