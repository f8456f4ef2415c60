"""The page of a predictor of histories, in a real browser."""

from playwright.sync_api import expect

from serving.page._app import PageSettings
from tests.page.tabs import tab_on
from tests.serving.page.models import VISITS


def test_a_history_has_a_timeline_with_the_weight_of_each_event(browser, kinds):
    with tab_on(browser, PageSettings(kinds, "mean", example=VISITS)) as tab:
        expect(tab.locator("svg .event")).to_have_count(3)
        weights = [bar.get_attribute("data-weight") for bar in tab.locator("svg .bar").all()]
        assert weights == ["0.5000", "0.0000", "0.5000"]
        tab.locator("svg .event").first.focus()
        assert tab.locator("svg .bar").nth(2).get_attribute("data-weight") == "0.0000"
        expect(tab.locator("#event")).to_contain_text("Time 0: 50 %. bili 0.5, note first")
        tab.locator("#person").select_option("b")
        expect(tab.locator("svg .event")).to_have_count(1)
        expect(tab.locator("#event")).to_contain_text("25 %")
        expect(tab.locator("#notes")).to_be_empty()
        tab.locator("#table").fill(VISITS.replace("a,10,,", "a,10,n.a.,") + "a,40,1,\n")
        tab.locator("#person").select_option("a")
        expect(tab.locator("#notes")).to_contain_text("1 cell is taken as missing in bili: line 3")
        expect(tab.locator("#event")).to_contain_text("more events than the model reads")
        tab.locator("#table").fill("patient,day,bili\na,3,x")
        expect(tab.locator("#status.error")).to_contain_text("bili needs a number")
        tab.locator("#table").fill(VISITS.replace("first", "<img src=x onerror=alert(1)>"))
        tab.locator("#person").select_option("a")
        expect(tab.locator("svg .event")).to_have_count(3)
        assert tab.locator("main #course img").count() == 0
