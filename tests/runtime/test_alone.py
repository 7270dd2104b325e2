"""Rows in one place: protocols run on them as over an engine, and nothing is sent."""

import logging
from typing import Annotated

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import InputError, MessageRefused, PartyFailed
from eigenmesh.runtime.alone import Alone
from eigenmesh.runtime.message import Floats, Message, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol

X = np.random.default_rng(0).normal(size=(400, 6)) * np.arange(1, 7)


class WhatToDo(Message, reveals=None):
    mood: str


class TurnedRows(Message, reveals="rows"):
    rows: Annotated[Floats, Shape("d", "n")]


class MoodyOwner(Party):
    Setup = WhatToDo

    @step
    def turned_rows(self) -> TurnedRows:
        if self.setup.mood == "refuses":
            raise InputError("these rows are not for sale")
        if self.setup.mood == "fails":
            raise OverflowError("a power of a row")
        rows = self.site.data.T
        return TurnedRows(rows=rows / 0 if self.setup.mood == "overflows" else rows)


@protocol("moody-owner", roles=(MoodyOwner,))
def moody_owner(rows, mood):
    rows.enlist(MoodyOwner, WhatToDo(mood=mood))
    return rows.ask(MoodyOwner.turned_rows)[0].rows


def both():
    return Alone(X), em.federation(em.Partitioned(rows=[X]))


def test_centroids_of_an_owner_alone_serve_as_well_as_cuts_of_a_tree():
    options = {"kernel": "rbf", "gamma": "median", "landmarks": "centroids", "n_landmarks": 40}
    alone, hosted = (em.DisKPCA(3, **options, random_state=0).fit(source) for source in both())
    assert alone.eigenvalues_.sum() > 0.995 * hosted.eigenvalues_.sum()


@pytest.mark.parametrize("landmarks", ["diskpca", "rpcholesky"])
def test_answers_are_those_of_a_federation_of_one_to_the_last_bit(landmarks):
    options = {"kernel": "rbf", "gamma": "median", "landmarks": landmarks, "n_landmarks": 40}
    alone, hosted = (
        em.DisKPCA(3, **options, accuracy=0.5, random_state=0).fit(source) for source in both()
    )
    np.testing.assert_array_equal(alone.eigenvalues_, hosted.eigenvalues_)
    np.testing.assert_array_equal(alone.transform(X), hosted.transform(X))
    # How far the mean is outside is seen by other sums, over all of so few rows.
    np.testing.assert_allclose(alone.residual_, hosted.residual_, rtol=1e-12)
    assert alone.report_.bytes == 0 < hosted.report_.bytes


@pytest.mark.parametrize(
    ("mood", "error"),
    [("refuses", InputError), ("fails", PartyFailed), ("overflows", MessageRefused)],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_errors_have_the_class_and_the_words_of_a_host(mood, error, caplog):
    caplog.set_level(logging.CRITICAL)
    words = []
    for fed in both():
        with pytest.raises(error) as raised:
            fed.run(moody_owner, mood)
        assert type(raised.value) is error
        assert raised.value.party == "party-0"
        words.append(str(raised.value))
    assert words[0] == words[1]


def test_messages_arrive_in_one_piece_and_cannot_be_written_to():
    for fed in both():
        rows = fed.run(moody_owner, "gives").value
        assert rows.flags.c_contiguous
        assert not rows.flags.writeable
    assert X.flags.writeable
