"""Attention as ribbons, in a real browser: seen without pointing, and brought forward by a word."""

import numpy as np
import pytest
from playwright.sync_api import expect

SIDES, WORDS = ["source", "target"], [7, 5]

DRAW = """async (data) => {
    const { ribbons } = await import("./static/ribbons.js");
    document.querySelector("#looks").hidden = false;
    const place = document.querySelector("#sentences");
    place.replaceChildren(document.createElement("div"));
    ribbons(place.firstChild, data);
}"""
LINKS = """() => [...document.querySelectorAll("#sentences path")].map((path) => {
    const { opacity, strokeWidth } = getComputedStyle(path);
    const ends = [path.getPointAtLength(0), path.getPointAtLength(path.getTotalLength())];
    const box = path.ownerSVGElement.getBoundingClientRect();
    return { ends: path.dataset.ends, opacity: Number(opacity), width: parseFloat(strokeWidth),
             points: ends.map(({ x, y }) => [x + box.left, y + box.top]) };
})"""
BOXES = """(css) => [...document.querySelectorAll(css)].map((word) => {
    const { left, right, top, bottom } = word.getBoundingClientRect();
    return [left, right, top, bottom];
})"""


def boxes(tab, css):
    """Left, right, top and bottom of elements, `(N, 4)`."""
    return np.array(tab.evaluate(BOXES, css))


@pytest.fixture
def drawn(view, rng):
    """A tab with ribbons of random weights, and the weights."""
    view.emulate_media(reduced_motion="reduce")
    expect(view.locator(".words").nth(1)).to_have_text("ONE TWO THREE")
    weights = rng.dirichlet(np.full(WORDS[0], 0.5), size=WORDS[1])
    words = {
        side: [f"{side}{n}" for n in range(count)] for side, count in zip(SIDES, WORDS, strict=True)
    }
    view.evaluate(DRAW, {**words, "weights": weights.tolist()})
    return view, weights


def links(tab):
    """The ribbons by (target, source)."""
    return {tuple(map(int, reversed(one["ends"].split(",")))): one for one in tab.evaluate(LINKS)}


def assert_ends_at_words(tab, along):
    """Check that ribbons end at the middles of their words, across (0) or down the page (1)."""
    sides = [boxes(tab, f"#sentences .{side} .word") for side in ("from", "to")]
    middles = [side[:, 2 * along :][:, :2].mean(1) for side in sides]
    for (t, s), one in links(tab).items():
        ends = np.array(one["points"])[:, along]
        np.testing.assert_allclose(ends, [middles[0][s], middles[1][t]], atol=1)


def test_widths_and_opacities_are_the_weights_and_the_strongest_stand_out(drawn):
    tab, weights = drawn
    found = links(tab)
    assert {*found} == {(t, s) for t, s in np.argwhere(weights >= 0.02).tolist()}
    best = {(t, int(row.argmax())) for t, row in enumerate(weights)}
    best |= {(int(c.argmax()), s) for s, c in enumerate(weights.T) if c.max() >= 0.02}
    ordered = sorted(found, key=lambda link: weights[link])
    widths = [found[link]["width"] for link in ordered]
    assert widths == sorted(widths)
    assert widths[-1] > 2 * widths[0]
    for strong in (True, False):
        opacities = [found[link]["opacity"] for link in ordered if (link in best) == strong]
        assert opacities == sorted(opacities)
        assert (min(opacities) >= 0.35) if strong else (max(opacities) < 0.35)


def test_the_strongest_link_of_a_target_word_is_drawn_however_small_it_is(drawn):
    tab, _ = drawn
    weights = np.full((2, 60), 1 / 60)
    weights[0, 11] += 0.002
    weights[1, 5] += 0.002
    words = {"source": ["s"] * 60, "target": ["t"] * 2}
    tab.evaluate(DRAW, {**words, "weights": weights.tolist()})
    assert {*links(tab)} == {(0, 11), (1, 5)}
    assert all(one["opacity"] >= 0.35 for one in links(tab).values())


def test_ribbons_end_at_their_words(drawn):
    tab, _ = drawn
    for width in (390, 820, 1280):
        tab.set_viewport_size({"width": width, "height": 900})
        along = int(width != 820)  # there a row fits, and the place is not wide
        expect(tab.locator(".ribbons.beside")).to_have_count(along)
        assert_ends_at_words(tab, along)


@pytest.mark.parametrize("side", [0, 1])
def test_a_word_brings_its_ribbons_forward_and_dims_the_rest(drawn, side):
    tab, weights = drawn
    n = WORDS[side] - 2
    words = [tab.locator("#sentences .words").nth(each).locator(".word") for each in (0, 1)]
    words[side].nth(n).hover()
    for (t, s), one in links(tab).items():
        own = (s, t)[side] == n
        assert (one["opacity"] >= 0.5) == own
        assert own or one["opacity"] <= 0.1
    lit = [float(word.get_attribute("data-weight")) for word in words[1 - side].all()]
    np.testing.assert_allclose(lit, weights[n] if side else weights[:, n], atol=1e-3)
    best = int((weights[n] if side else weights[:, n]).argmax())
    expect(tab.locator(".told")).to_contain_text(f"{SIDES[1 - side]}{best} ")
    tab.locator("h1").hover()
    assert max(one["opacity"] for one in links(tab).values()) < 0.9
    expect(tab.locator(".ribbons.active")).to_have_count(0)
    words[side].nth(n).focus()
    expect(tab.locator(".ribbons.active")).to_have_count(1)


# Written from right to left: Arabic and Hebrew.
READ = {"arabic": "هي تأكل تفاحة خضراء كبيرة", "hebrew": "היא אוכלת תפוח ירוק גדול"}


@pytest.mark.parametrize("language", READ)
@pytest.mark.parametrize(("width", "beside"), [(1280, True), (820, False), (420, True)])
def test_words_from_right_to_left_stand_at_their_ribbons(view, language, width, beside):
    source, target = READ[language].split(), ["elle", "mange", "une", "grande", "pomme", "ici"]
    view.emulate_media(reduced_motion="reduce")
    expect(view.locator(".words").nth(1)).to_have_text("ONE TWO THREE")
    view.set_viewport_size({"width": width, "height": 900})
    for words in ((source, target), (target, source)):  # from it, and to it
        weights = np.eye(len(words[1]), len(words[0])) * 0.9 + 0.01
        view.evaluate(DRAW, dict(zip((*SIDES, "weights"), (*words, weights.tolist()), strict=True)))
        assert bool(view.locator("#sentences .ribbons.beside").count()) == beside
        ((left, right, *_),) = boxes(view, "#sentences svg")
        sides = [boxes(view, f"#sentences .{side} .word") for side in ("from", "to")]
        if beside:
            assert abs(left - sides[0][:, 1]).max() < 12
            assert abs(right - sides[1][:, 0]).max() < 12
        else:  # a sentence is read from the right
            assert (np.diff(sides[words.index(source)][:, 0]) < 0).all()
            assert_ends_at_words(view, 0)
