from training.score.baselines import most_similar


def test_the_translation_of_the_most_similar_source_is_taken():
    pairs = [("a b c d", "one"), ("a b x y", "two"), ("d c b a", "three")]
    found = most_similar(pairs, ["A b x z", "a b c d", "d c b q", "nothing known"])
    assert found == ["two", "one", "three", "one"]
