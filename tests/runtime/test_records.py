"""Records keep their names wherever their classes move."""

from typing import NamedTuple

import numpy as np
import pytest

from eigenmesh.errors import MessageRefused
from eigenmesh.numerics.column_preparation import ColumnPreparation
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime import records, wire
from eigenmesh.stages import column_scores  # noqa: F401  (enters the records of columns)


class Pair(NamedTuple):
    left: int
    right: int


def named(name, **fields):
    return wire.dumps({"value": {"record": name, **fields}})


def test_a_record_of_this_library_is_written_under_its_classs_name_alone():
    tree = records.to_tree(Kernel("rbf", 0.5))
    assert tree["record"] == "Kernel"
    assert records.loads(records.dumps(Kernel("rbf", 0.5))) == Kernel("rbf", 0.5)


@pytest.mark.parametrize("path", ["eigenmesh.numerics.kernels", "eigenmesh.moved.elsewhere.since"])
def test_module_paths_of_earlier_files_lead_to_the_class_wherever_it_is_now(path):
    fields = records.to_tree(Kernel("rbf", 0.5))
    fields["record"] = f"{path}.Kernel"
    assert records.from_tree(fields) == Kernel("rbf", 0.5)


def test_former_names_lead_to_the_class_and_belong_to_nobody_else():
    records.formerly("Twosome")(records.record(Pair))
    assert records.loads(named("Twosome", left=1, right=2)) == Pair(1, 2)
    assert records.to_tree(Pair(1, 2))["record"].endswith(".Pair")
    with pytest.raises(TypeError, match="Twosome"):
        records.formerly("Twosome")(Kernel)


def test_a_second_record_of_one_name_is_refused_when_it_is_declared():
    kind = type("Kernel", (), {"__module__": "eigenmesh.elsewhere"})
    with pytest.raises(TypeError, match="'Kernel'"):
        records.record(kind)


@pytest.mark.parametrize("name", ["Nothing", "os.system", "eigenmesh.threads.Nothing", 3, None])
def test_what_is_not_in_the_table_is_refused(name):
    with pytest.raises(MessageRefused):
        records.loads(named(name if name is not None else "", x=1))


def test_columns_prepared_by_earlier_models_come_under_the_name_that_they_had():
    own = ColumnPreparation(None, np.zeros(2), np.ones(2))
    tree = records.to_tree(own)
    assert tree["record"] == "ColumnPreparation"
    for name in ("Preparation", "eigenmesh.numerics.preparation.Preparation"):
        assert isinstance(records.from_tree({**tree, "record": name}), ColumnPreparation)
