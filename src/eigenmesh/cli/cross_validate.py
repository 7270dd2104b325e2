"""The command that compares gammas and numbers of components or clusters."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from eigenmesh.cli import options
from eigenmesh.cli.pages import features_beside, labels_in
from eigenmesh.connect import federation
from eigenmesh.cross_validation.result import CrossValidationResult
from eigenmesh.cross_validation.search import AROUND, CrossValidation
from eigenmesh.errors import InputError
from eigenmesh.estimators.plan import plan as forecast
from eigenmesh.extras import extra
from eigenmesh.kernel_kmeans.estimator import KernelKMeans
from eigenmesh.kernel_pca.estimator import KernelPCA
from eigenmesh.regression.estimator import KernelPCRegressor
from eigenmesh.reports.documents import account_tree, as_json, check_output
from eigenmesh.reports.tables import (
    cross_validation_table,
    plan_table,
    report_table,
    reveals_table,
)
from eigenmesh.reports.terminal import answering, progress, say
from eigenmesh.stages.gamma import RULES

_PICTURES = (".png", ".pdf", ".svg")


def cross_validate(
    data: options.Files,
    *,
    components: Annotated[
        str | None,
        typer.Option(help="Numbers of components to compare, as 2,5,10.", show_default=False),
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(help="Numbers of clusters to compare, as 2,3,4,5.", show_default=False),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="A column of the files, which is predicted from the components: they are then "
            "compared by R².",
            show_default=False,
        ),
    ] = None,
    alpha: Annotated[
        str, typer.Option(help="With --target: penalties to compare, as 0.1,1.")
    ] = "1",
    kernel: options.Kernel = "rbf",
    gamma: Annotated[
        str,
        typer.Option(
            help="Numbers to compare, as 0.1,1,10; or median, mean-distance or scale, of which ¼, "
            "½, 1, 2 and 4 times are compared."
        ),
    ] = "mean-distance",
    degree: options.Degree = 3,
    coef0: options.Coef0 = 1,
    folds: Annotated[int, typer.Option(help="Folds, which each party draws of its rows.")] = 5,
    rule: Annotated[
        str,
        typer.Option(
            help="What is taken: one-standard-error, the fewest components or clusters within one "
            "standard error of the best; or best."
        ),
    ] = "one-standard-error",
    landmarks: options.Landmarks = "auto",
    n_landmarks: options.LandmarkCount = None,
    seed: options.Seed = 0,
    reading: options.RowFileOptions,
    preparing: options.PreparationOptions,
    disclosure: options.DisclosureOptions,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Say what it would cost, and run nothing.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the scores, as .png, .pdf or .svg.")
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Compare gammas and numbers of components or clusters on rows that were held out.

    For rows. No row leaves its party, nor is it told which are held out.

    Example: [bold]eigenmesh cross-validate a.csv b.csv --clusters 2,3,4,5 --gamma median[/bold]
    """
    with answering(json):
        if picture:
            check_output(picture, data, _PICTURES)
        features = features_beside(target, data, reading)
        _require_rows(data, features, reading)
        words = {**reading.words(), **preparing.choice_words(features)}
        search = _search(
            (components, clusters, target),
            {"gamma": gamma, "alpha": alpha},
            {"n_folds": folds, "rule": rule},
            {
                **options.kernel_words(kernel, None, degree, coef0),
                **{"landmarks": landmarks, "n_landmarks": n_landmarks, "random_state": seed},
                **{"small_parties": disclosure.small_parties},
                **{"preparation": preparing.preparation()},
            },
        )
        parts = options.parties(data, "rows", reading.names, disclosure.allow, **words)
        masked = federation(parts, secure=True) if disclosure.secure else nullcontext(parts)
        with masked as source:
            if only_plan:
                _show_plan(forecast(search, source), json)
                return
            with progress("comparing"):
                search.fit(source, _targets(target, data, reading))
        if picture:
            with extra("plot", "--picture"):
                from eigenmesh.reports.plots import cross_validation
            cross_validation(search.result_, path=picture)
        _show(search.result_, picture, json)


def _require_rows(
    data: list[Path], features: list[str] | None, reading: options.RowFileOptions
) -> None:
    """Refuse files of columns by that, and not by the names that each of them lacks."""
    if features is not None:
        return
    split = ""
    with suppress(InputError):  # names that are shared in part, which the parties will say
        split = options.split_of(None, data, "rows", reading.id_column, **reading.text_words())
    if split == "columns":
        raise InputError(
            "cross-validate is for rows, and these files hold columns of the same samples; rows "
            "are files that have the same columns"
        )


def _search(
    numbers: tuple[str | None, str | None, str | None],
    texts: dict[str, str],
    how: dict[str, Any],
    words: dict[str, Any],
) -> CrossValidation:
    """What the options amount to."""
    components, clusters, target = numbers
    if (components is None) == (clusters is None):
        raise InputError("--components or --clusters is expected, one of them, as 2,5,10")
    takes_gamma = words["kernel"] not in ("linear", "cosine", "arc-cosine")
    grid: dict[str, Any] = {}
    own: dict[str, Any] = dict(words)
    if takes_gamma:
        is_rule = texts["gamma"] in RULES
        own["gamma"] = texts["gamma"] if is_rule else 1.0
        grid["gamma"] = AROUND if is_rule else _numbers(texts["gamma"], "gamma", float)
    if clusters is not None:
        if target is not None:
            raise InputError("--target is predicted from components; pass --components, as 2,5,10")
        grid["n_clusters"] = _numbers(clusters, "clusters", int)
        return CrossValidation(KernelKMeans(**own), **grid, **how)
    grid["n_components"] = _numbers(components or "", "components", int)
    if target is None:
        return CrossValidation(KernelPCA(**own), **grid, **how)
    grid["alpha"] = _numbers(texts["alpha"], "alpha", float)
    return CrossValidation(KernelPCRegressor(**own), **grid, **how)


def _numbers(text: str, option: str, kind: type) -> list[Any]:
    """Those in a list with commas."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        example = "2,5,10" if kind is int else "0.1,1,10"
        raise InputError(f"--{option} {text}: numbers as {example} are expected") from None


def _targets(target: str | None, data: list[Path], reading: options.RowFileOptions) -> Any:
    words = labels_in(data, target, reading)
    if words is None:
        return None
    try:
        return [np.asarray(own, dtype=np.float64) for own in words]
    except ValueError as error:
        raise InputError(f"--target {target}: {error}; numbers are expected") from None


def _show_plan(account: Any, json: bool) -> None:
    if json:
        typer.echo(as_json(account_tree(account)))
        return
    _print(plan_table(account), reveals_table(account, title="What would leave each party"))


def _show(result: CrossValidationResult, picture: Path | None, json: bool) -> None:
    if json:
        candidates = [
            {**one.params, "score": one.score, "error": one.error, "fold_scores": one.fold_scores}
            for one in result.candidates
        ]
        tree = {"taken": result.best_params, "measure": result.measure, "candidates": candidates}
        typer.echo(as_json({**tree, "picture": picture, "report": account_tree(result.report)}))
        return
    _print(
        cross_validation_table(result),
        report_table(result.report, notes=False),
        reveals_table(result.report, title="What left each party"),
    )
    if picture:
        say(Console(), f"Saved: {picture}", "cyan")


def _print(*tables: Any) -> None:
    for table in tables:
        Console().print()
        Console().print(table)
