"""The named corpora of histories: which events count, and the outcome that each is asked for."""

import numpy as np

from training.sources.events import data as events


def pbc_row(patient, day, futime, status, **values):
    cells = {"bili": "2.0", "albumin": "3.5", "protime": "11", "edema": "0.5", "stage": "3"}
    cells |= {name: "1" for name in ("ast", "alk.phos", "platelet", "ascites", "hepato", "spiders")}
    cells |= {"chol": "", "sex": "f", "age": "50", "trt": "1"}
    cells |= {"id": patient, "day": str(day), "futime": str(futime), "status": status, **values}
    return cells


def test_landmarks_of_pbcseq_look_two_years_ahead():
    rows = [
        pbc_row("1", 0, 1000, "2"),  # dies after 1,000 days: later than two years from here
        pbc_row("1", 400, 1000, "2"),  # in 600 days
        pbc_row("2", 0, 500, "0"),  # lost after 500 days: nobody knows
        pbc_row("3", 0, 2000, "0"),
        pbc_row("3", 1000, 2000, "0"),
        pbc_row("3", 1900, 2000, "0"),
        pbc_row("4", 0, 100, "1"),  # a transplant
    ]
    found = events._pbcseq(rows)
    assert found.labels.tolist() == [0, 1, 0, 0, 1]
    assert found.people.tolist() == ["1", "1", "3", "3", "4"]
    assert (found.ends - found.starts).tolist() == [1, 2, 1, 2, 1]
    assert np.isnan(found.values[:, list(found.schema.columns).index("chol")]).all()


def test_nafld_reads_nothing_after_the_index_date():
    person = {"age": "50", "male": "1", "bmi": "", "weight": "", "height": "", "case.id": "1"}
    people = [
        {**person, "id": "1", "futime": "100", "status": "1"},
        {**person, "id": "2", "futime": "100", "status": "0"},  # lost
        {**person, "id": "3", "futime": "3000", "status": "1"},  # dies later
    ]
    tests = [
        {"id": "1", "days": "-5", "test": "hdl", "value": "40"},
        {"id": "1", "days": "-5", "test": "hdl", "value": "60"},
        {"id": "1", "days": "1", "test": "hdl", "value": "999"},
    ]
    diagnoses = [
        {"id": "3", "days": "-9", "event": "htn"},
        {"id": "1", "days": "7", "event": "htn"},
        {"id": "1", "days": "0", "event": "nafld"},
    ]
    found = events._nafld(people, tests, diagnoses)
    assert found.labels.tolist() == [1, 0]
    assert found.people.tolist() == ["1", "3"]
    columns = list(found.schema.columns)
    assert found.times.tolist() == [-5, 0, -9, 0]
    assert found.values[0, columns.index("hdl")] == 50
    assert found.values[2, columns.index("htn")] == 1
    assert found.values[1, columns.index("age")] == 50
    assert np.nanmax(found.values) < 999
