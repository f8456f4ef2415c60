"""The kinds of sentences, with the weight that a draw gives to each."""

from training.phrasebook import actions, states
from training.phrasebook.families import Template

TEMPLATES = tuple(
    Template(families.__name__, weight, families)
    for weight, families in (
        (18, actions.actions),
        (22, actions.actions_on_described_things),
        (10, actions.timed_actions),
        (7, actions.habits),
        (2, actions.what_questions),
        (3, actions.who_questions),
        (4, actions.pronoun_objects),
        (3, actions.gifts),
        (4, actions.activities),
        (4, actions.activities_somewhere),
        (5, actions.journeys),
        (9, states.predications),
        (4, states.states_of_people),
        (2, states.identities),
        (6, states.existences),
        (4, states.locations),
        (1, states.where_questions),
    )
)
