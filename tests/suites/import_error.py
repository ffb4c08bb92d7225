"""A suite that needs what is not installed."""

import a_package_that_nobody_has_installed

from pairbench import Operator, grid

import_error = Operator(
    "import_error",
    baseline=a_package_that_nobody_has_installed.plain,
    variants={"fast": a_package_that_nobody_has_installed.fast},
    inputs=lambda make, rows: {"x": make.normal(rows)},
    cases=grid(rows=[4]),
)
