"""``reshape workload generate``: a trace drawn from a workload model."""

from __future__ import annotations

from pathlib import Path

import click

from simulator import swf
from simulator.files import check_place
from simulator.workloads.made import Wanted, make


@click.command()
@click.argument("model", metavar="MODEL")
@click.option("--jobs", type=click.IntRange(min=2), default=1000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option("--processors", type=click.IntRange(min=2), help="Of the machine (128).")
@click.option("--load", type=float, help="Offered load (that of the model, else 0.7).")
@click.option("--queue", type=float, help="Instead: mean ready queue of EASY, found by simulating.")
@click.option("--resources", type=click.IntRange(min=0), default=0, help="Further resources.")
@click.option(
    "--law",
    type=click.Choice(["uniform", "exponential"]),
    default="uniform",
    show_default=True,
    help="How requirements of several resources spread.",
)
@click.option(
    "--estimates",
    type=click.Choice(["exact", "tsafrir"]),
    default="exact",
    show_default=True,
    help="What users request.",
)
@click.option("--longest", type=click.IntRange(min=20), help="Largest request, seconds (64800).")
@click.option("--set", "fields", multiple=True, metavar="NAME=VALUE", help="Model parameter.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True)
def generate(
    model: str,
    processors: int | None,
    longest: int | None,
    fields: tuple[str, ...],
    output: Path,
    **options: object,
) -> None:
    r"""Draw jobs from MODEL (feitelson96 or lublin) into a trace; the same seed, the same bytes.

    \b
    reshape workload generate lublin --jobs 10000 --processors 256 -o lublin.swf.gz
    reshape workload generate feitelson96 --queue 64 --resources 3 --seed 2 -o k4.swf
    """
    if options["load"] is not None and options["queue"] is not None:
        raise click.UsageError("--load and --queue both say how fast jobs arrive; give one")
    if longest is not None and options["estimates"] != "tsafrir":
        raise click.UsageError("--longest says something with --estimates tsafrir alone")
    if not output.name.removesuffix(".gz").endswith(".swf"):
        raise click.UsageError(f"{output} does not end in .swf or .swf.gz")
    parameters: dict[str, object] = {} if processors is None else {"processors": processors}
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals:
            raise click.UsageError(f"--set {field!r} has no value; write --set {field}=VALUE")
        parameters[name] = value
    check_place(output)
    given = options if longest is None else options | {"longest_s": longest}
    trace = make(Wanted(model, parameters=parameters, **given))  # type: ignore[arg-type]
    swf.write(output, trace)
    click.echo(f"{output}: {len(trace)} jobs of model {model}")
